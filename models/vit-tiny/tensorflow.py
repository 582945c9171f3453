from keras import Input, Model, layers, ops

from xverify.models.keras_layers import GELU, Conv2d


class Token(layers.Layer):
    """Puts a learned token before the others."""

    canonical_weights = {"weight": ("weight", None)}

    def build(self, shape):
        self.weight = self.add_weight(shape=(1, shape[-1]), initializer="random_normal", name="weight")

    def call(self, x):
        token = ops.broadcast_to(self.weight, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], 1)


class Position(layers.Layer):
    """Adds a learned vector to every position."""

    canonical_weights = {"weight": ("weight", None)}

    def build(self, shape):
        self.weight = self.add_weight(shape=shape[1:], initializer="random_normal", name="weight")

    def call(self, x):
        return x + self.weight


def attention(x, heads, name):
    length, dim = x.shape[1:]

    def split(x):
        return ops.transpose(ops.reshape(x, (-1, length, heads, dim // heads)), (0, 2, 1, 3))

    q = split(layers.Dense(dim, name=f"{name}.q")(x))
    k = split(layers.Dense(dim, name=f"{name}.k")(x))
    v = split(layers.Dense(dim, name=f"{name}.v")(x))
    scores = q @ ops.transpose(k, (0, 1, 3, 2)) / (dim // heads) ** 0.5
    x = layers.Softmax(-1, name=f"{name}.softmax")(scores) @ v
    x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, length, dim))
    return layers.Dense(dim, name=f"{name}.proj")(x)


def block(x, heads, name):
    dim = x.shape[-1]
    out = layers.LayerNormalization(epsilon=1e-6, name=f"{name}.ln1")(x)
    x = x + attention(out, heads, f"{name}.attn")
    out = layers.LayerNormalization(epsilon=1e-6, name=f"{name}.ln2")(x)
    out = layers.Dense(4 * dim, name=f"{name}.fc1")(out)
    out = GELU(name=f"{name}.gelu")(out)
    return x + layers.Dense(dim, name=f"{name}.fc2")(out)


def build(image=64, patch=8, dim=192, depth=6, heads=3, classes=10):
    inputs = Input((image, image, 3), name="x")
    x = Conv2d(dim, patch, patch, name="patch")(inputs)
    x = ops.reshape(x, (-1, (image // patch) ** 2, dim))
    x = Token(name="cls")(x)
    x = Position(name="pos")(x)
    for index in range(depth):
        x = block(x, heads, f"blocks.{index}")
    x = layers.LayerNormalization(epsilon=1e-6, name="ln")(x)
    x = layers.Dense(classes, name="head")(x[:, 0])
    return Model(inputs, x, name="vit")
