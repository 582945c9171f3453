from keras import Input, Model, layers, ops

from xverify.models.keras_layers import GELU


class Position(layers.Layer):
    """Adds a learned vector to every position."""

    canonical_weights = {"weight": ("weight", None)}

    def build(self, shape):
        self.weight = self.add_weight(shape=shape[1:], initializer="random_normal", name="weight")

    def call(self, x):
        return x + self.weight


class CausalSoftmax(layers.Layer):
    """Softmax of each token over itself and the tokens before it.

    The mask is part of this layer, so that the input of the layer is finite.
    """

    def call(self, scores):
        place = ops.arange(scores.shape[-1])
        future = place > place[:, None]
        return ops.softmax(ops.where(future, float("-inf"), scores), -1)


def attention(x, heads, name):
    length, dim = x.shape[1:]

    def split(x):
        return ops.transpose(ops.reshape(x, (-1, length, heads, dim // heads)), (0, 2, 1, 3))

    q = split(layers.Dense(dim, name=f"{name}.q")(x))
    k = split(layers.Dense(dim, name=f"{name}.k")(x))
    v = split(layers.Dense(dim, name=f"{name}.v")(x))
    scores = q @ ops.transpose(k, (0, 1, 3, 2)) / (dim // heads) ** 0.5
    x = CausalSoftmax(name=f"{name}.softmax")(scores) @ v
    x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, length, dim))
    return layers.Dense(dim, name=f"{name}.proj")(x)


def block(x, heads, name):
    dim = x.shape[-1]
    out = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.ln1")(x)
    x = x + attention(out, heads, f"{name}.attn")
    out = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.ln2")(x)
    out = layers.Dense(4 * dim, name=f"{name}.fc1")(out)
    out = GELU(name=f"{name}.gelu")(out)
    return x + layers.Dense(dim, name=f"{name}.fc2")(out)


class Head(layers.Layer):
    """Computes logits with the weight of the token embedding; the layer has no weight itself."""

    def __init__(self, tok, **more):
        super().__init__(**more)
        self.tok = tok

    def call(self, x):
        return x @ ops.transpose(self.tok.embeddings)


def build(vocabulary=1000, dim=128, depth=4, heads=4, length=64):
    tok = layers.Embedding(vocabulary, dim, name="tok")
    inputs = Input((length,), dtype="int64", name="tokens")
    x = tok(inputs)
    x = Position(name="pos")(x)
    for index in range(depth):
        x = block(x, heads, f"blocks.{index}")
    x = layers.LayerNormalization(epsilon=1e-5, name="ln")(x)
    x = Head(tok, name="head")(x)
    return Model(inputs, x, name="gpt")
