from keras import Input, Model, layers, ops


def build(width=10):
    words, tags, codes = (Input((length,), dtype="int64") for length in (7, 5, 4))
    image = Input((6, 8, 3))
    x = layers.Conv2D(width, 3, activation="relu", name="conv")(image)
    pooled = ops.mean(ops.mean(x, axis=1), axis=1)
    parts = [
        ops.sum(layers.Embedding(40, width, name="words")(words), axis=1),
        ops.mean(layers.Embedding(12, width, name="tags")(tags), axis=1),
        ops.max(layers.Embedding(9, width, name="codes")(codes), axis=1),
        pooled,
    ]
    x = layers.Dense(12, activation="relu", name="hidden")(layers.Concatenate()(parts))
    return Model([words, tags, codes, image], layers.Dense(6, name="head")(x))
