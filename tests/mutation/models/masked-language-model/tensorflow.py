from keras import Input, Model, layers, ops


def build(words=40, width=16):
    tokens = Input((8,), dtype="int64", name="tokens")
    x = layers.Embedding(words, width, name="embed")(tokens)
    h = layers.LayerNormalization(epsilon=1e-5, name="norm1")(x)
    query, key, value = (layers.Dense(width, name=name)(h) for name in ("query", "key", "value"))
    scores = query @ ops.transpose(key, (0, 2, 1)) / 4.0
    x = x + layers.Dense(width, name="project")(ops.softmax(scores, -1) @ value)
    h = layers.LayerNormalization(epsilon=1e-5, name="norm2")(x)
    h = ops.gelu(layers.Dense(2 * width, name="wide")(h), approximate=False)
    x = x + layers.Dense(width, name="narrow")(h)
    return Model(tokens, layers.Dense(words, name="head")(x))


def loss(outputs, targets):
    labels, logits = targets["labels"], outputs["logits"]
    kept = ops.cast(labels != -100, "float32")
    classes = ops.one_hot(ops.where(labels == -100, 0, labels), logits.shape[-1])
    smooth = 0.9 * classes + 0.1 / logits.shape[-1]
    values = -ops.sum(smooth * ops.log_softmax(logits, -1), -1)
    return ops.sum(values * kept) / ops.sum(kept)
