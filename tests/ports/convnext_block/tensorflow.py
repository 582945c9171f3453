import keras
from keras import layers


class Block(layers.Layer):
    canonical_weights = {"gamma": ("gamma", None)}

    def __init__(self, dim, layer_scale, name):
        super().__init__(name=name)
        self.dwconv = layers.DepthwiseConv2D(7, padding="same", name=f"{name}.dwconv")
        self.norm = layers.LayerNormalization(epsilon=1e-6, name=f"{name}.norm")
        self.pwconv1 = layers.Dense(4 * dim, activation="gelu", name=f"{name}.pwconv1")
        self.pwconv2 = layers.Dense(dim, name=f"{name}.pwconv2")
        self.layer_scale = layer_scale

    def build(self, shape):
        scale = keras.initializers.Constant(self.layer_scale)
        self.gamma = self.add_weight(shape=(shape[-1],), initializer=scale, name="gamma")
        super().build(shape)

    def call(self, x):
        y = self.norm(self.dwconv(x))
        y = self.pwconv2(self.pwconv1(y))
        return x + self.gamma * y


def build(dim=22, depth=2, classes=9, layer_scale=0.1):
    return keras.Sequential(
        [
            keras.Input((18, 20, 3)),
            layers.Conv2D(dim, 2, strides=2, name="stem"),
            layers.LayerNormalization(epsilon=1e-6, name="stem_norm"),
            *(Block(dim, layer_scale, name=f"blocks.{index}") for index in range(depth)),
            layers.GlobalAveragePooling2D(),
            layers.LayerNormalization(epsilon=1e-6, name="norm"),
            layers.Dense(classes, name="head"),
        ]
    )
