import keras
from keras import layers


class SqueezeExcite(layers.Layer):
    def __init__(self, channels, reduced, name):
        super().__init__(name=name)
        self.pool = layers.GlobalAveragePooling2D(keepdims=True)
        self.reduce = layers.Dense(reduced, activation="relu", name=f"{name}.reduce")
        self.expand = layers.Dense(channels, activation="hard_sigmoid", name=f"{name}.expand")

    def call(self, x):
        return x * self.expand(self.reduce(self.pool(x)))


class Bottleneck(layers.Layer):
    def __init__(self, inputs, middle, outputs, kernel, strides, name):
        super().__init__(name=name)
        self.residual = strides == 1 and inputs == outputs
        self.conv1 = layers.Conv2D(middle, 1, use_bias=False, name=f"{name}.conv1")
        self.bn1 = layers.BatchNormalization(name=f"{name}.bn1")
        self.pad = layers.ZeroPadding2D(kernel // 2)
        self.conv2 = layers.DepthwiseConv2D(kernel, strides, use_bias=False, name=f"{name}.conv2")
        self.bn2 = layers.BatchNormalization(name=f"{name}.bn2")
        self.se = SqueezeExcite(middle, middle // 4, name=f"{name}.se")
        self.conv3 = layers.Conv2D(outputs, 1, use_bias=False, name=f"{name}.conv3")
        self.bn3 = layers.BatchNormalization(name=f"{name}.bn3")

    def call(self, x):
        out = keras.activations.hard_swish(self.bn1(self.conv1(x)))
        out = keras.activations.hard_swish(self.bn2(self.conv2(self.pad(out))))
        out = self.bn3(self.conv3(self.se(out)))
        return x + out if self.residual else out


class Net(keras.Model):
    def __init__(self, width, classes):
        super().__init__()
        self.pad = layers.ZeroPadding2D(1)
        self.stem = layers.Conv2D(width, 3, 2, activation="hard_swish", name="stem")
        self.block1 = Bottleneck(width, 3 * width, width, 3, 1, name="block1")
        self.block2 = Bottleneck(width, 4 * width, width + 8, 5, 2, name="block2")
        self.pool = layers.GlobalAveragePooling2D()
        self.fc = layers.Dense(classes, name="fc")

    def call(self, x):
        x = self.stem(self.pad(x))
        x = self.block2(self.block1(x))
        return self.fc(self.pool(x))


def build(width=12, classes=6):
    model = Net(width, classes)
    model(keras.ops.zeros((1, 18, 24, 3)))
    return model
