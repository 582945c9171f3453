import keras
from keras import layers, ops


class Mlp(layers.Layer):
    def __init__(self, width, hidden, name):
        super().__init__(name=name)
        self.fc1 = layers.Dense(hidden, activation="gelu", name=f"{name}.fc1")
        self.fc2 = layers.Dense(width, name=f"{name}.fc2")

    def call(self, x):
        return self.fc2(self.fc1(x))


class Block(layers.Layer):
    def __init__(self, patches, width, name):
        super().__init__(name=name)
        self.norm1 = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.norm1")
        self.tokens = Mlp(patches, 10, name=f"{name}.tokens")
        self.norm2 = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.norm2")
        self.channels = Mlp(width, 32, name=f"{name}.channels")

    def call(self, x):
        y = ops.swapaxes(self.norm1(x), 1, 2)
        x = x + ops.swapaxes(self.tokens(y), 1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(keras.Model):
    def __init__(self, patches, width, depth, classes):
        super().__init__()
        self.patch = layers.Conv2D(width, 4, strides=4, name="patch")
        self.flat = layers.Reshape((patches, width))
        self.blocks = [Block(patches, width, name=f"blocks.{index}") for index in range(depth)]
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.pool = layers.GlobalAveragePooling1D()
        self.head = layers.Dense(classes, name="head")

    def call(self, image):
        x = self.flat(self.patch(image))
        for block in self.blocks:
            x = block(x)
        return self.head(self.pool(self.norm(x)))


def build(patches=12, width=20, depth=2, classes=6):
    model = Mixer(patches, width, depth, classes)
    model(ops.zeros((1, 12, 16, 3)))
    return model
