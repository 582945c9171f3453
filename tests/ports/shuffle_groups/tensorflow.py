import keras
from keras import layers


def channel_shuffle(x, groups):
    _, h, w, c = x.shape
    x = layers.Reshape((h, w, groups, c // groups))(x)
    x = layers.Permute((1, 2, 4, 3))(x)
    return layers.Reshape((h, w, c))(x)


def batch_norm(name):
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)


def unit(x, filters, groups, strides, name):
    inputs, middle = x, filters // 4
    branch = filters if strides == 1 else filters - x.shape[-1]
    x = layers.Conv2D(middle, 1, groups=groups, use_bias=False, name=f"{name}.reduce")(x)
    x = batch_norm(f"{name}.bn1")(x)
    x = layers.Activation("relu")(x)
    x = channel_shuffle(x, groups)
    x = layers.ZeroPadding2D(1)(x)
    x = layers.DepthwiseConv2D(3, strides, use_bias=False, name=f"{name}.depthwise")(x)
    x = batch_norm(f"{name}.bn2")(x)
    x = layers.Conv2D(branch, 1, groups=groups, use_bias=False, name=f"{name}.expand")(x)
    x = batch_norm(f"{name}.bn3")(x)
    if strides == 1:
        return layers.Activation("relu")(layers.Add()([inputs, x]))
    x = layers.Concatenate()([layers.AveragePooling2D(2)(inputs), x])
    return layers.Activation("relu")(x)


def build(groups=3, classes=7):
    inputs = keras.Input((12, 16, 3), name="x")
    x = layers.Conv2D(24, 3, padding="same", activation="relu", name="stem")(inputs)
    x = unit(x, 48, groups, 2, "unit1")
    x = unit(x, 48, groups, 1, "unit2")
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, name="fc")(x))
