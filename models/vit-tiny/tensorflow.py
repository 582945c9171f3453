from keras import Input, Model, layers, ops

from xverify.models.keras_layers import Conv2d, Position, block


class Token(layers.Layer):
    """Puts a learned token before the others."""

    canonical_weights = {"weight": ("weight", None)}

    def build(self, shape):
        self.weight = self.add_weight(shape=(1, shape[-1]), initializer="random_normal", name="weight")

    def call(self, x):
        token = ops.broadcast_to(self.weight, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], 1)


def build(image=64, patch=8, dim=192, depth=6, heads=3, classes=10):
    inputs = Input((image, image, 3), name="x")
    x = Conv2d(dim, patch, patch, name="patch")(inputs)
    x = ops.reshape(x, (-1, (image // patch) ** 2, dim))
    x = Token(name="cls")(x)
    x = Position(name="pos")(x)
    for index in range(depth):
        x = block(x, heads, layers.Softmax, 1e-6, f"blocks.{index}")
    x = layers.LayerNormalization(epsilon=1e-6, name="ln")(x)
    x = layers.Dense(classes, name="head")(x[:, 0])
    return Model(inputs, x, name="vit")
