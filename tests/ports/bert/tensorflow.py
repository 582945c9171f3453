import keras
from keras import layers, ops


def norm(name):
    return layers.LayerNormalization(epsilon=1e-12, name=name)


class Embeddings(layers.Layer):
    """Sums the embeddings of words, types and positions."""

    def __init__(self, words, positions, types, width):
        super().__init__(name="embeddings")
        self.word = layers.Embedding(words, width, name="embeddings.word_embeddings")
        self.position = layers.Embedding(positions, width, name="embeddings.position_embeddings")
        self.type = layers.Embedding(types, width, name="embeddings.token_type_embeddings")
        self.norm = norm("embeddings.LayerNorm")

    def call(self, ids, types):
        positions = ops.arange(ids.shape[1])
        return self.norm(self.word(ids) + self.type(types) + self.position(positions))


def attention(x, bias, heads, name):
    length, width = x.shape[1:]

    def project(part):
        y = layers.Dense(width, name=f"{name}.self.{part}")(x)
        y = layers.Reshape((length, heads, width // heads))(y)
        return layers.Permute((2, 1, 3))(y)

    query, key, value = project("query"), project("key"), project("value")
    scores = ops.matmul(query, ops.swapaxes(key, 2, 3)) / (width // heads) ** 0.5
    y = ops.matmul(ops.softmax(scores + bias, axis=-1), value)
    y = layers.Reshape((length, width))(layers.Permute((2, 1, 3))(y))
    y = layers.Dense(width, name=f"{name}.output.dense")(y)
    return norm(f"{name}.output.LayerNorm")(y + x)


def block(x, bias, heads, hidden, name):
    x = attention(x, bias, heads, f"{name}.attention")
    y = layers.Dense(hidden, activation="gelu", name=f"{name}.intermediate.dense")(x)
    y = layers.Dense(x.shape[-1], name=f"{name}.output.dense")(y)
    return norm(f"{name}.output.LayerNorm")(y + x)


def build(words=53, length=9, positions=20, width=24, depth=2, heads=3, hidden=40):
    ids, mask, types = (keras.Input((length,), dtype="int64", name=name) for name in ("ids", "mask", "types"))
    bias = (1.0 - ops.cast(mask, "float32"))[:, None, None, :] * -1e9
    x = Embeddings(words, positions, 2, width)(ids, types)
    for index in range(depth):
        x = block(x, bias, heads, hidden, f"encoder.layer.{index}")
    pooled = layers.Dense(width, activation="tanh", name="pooler.dense")(x[:, 0])
    return keras.Model([ids, mask, types], [x, pooled], name="bert")
