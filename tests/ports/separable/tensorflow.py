from keras import Input, Model, layers, ops


def hard_swish(x):
    return x * ops.relu6(x + 3.0) / 6.0


def norm(x, name):
    return layers.BatchNormalization(epsilon=1e-3, momentum=0.9, name=f"{name}.1")(x)


def pointwise(x, filters, name):
    return norm(layers.Conv2D(filters, 1, use_bias=False, name=f"{name}.0")(x), name)


def build():
    image = Input((20, 14, 3), name="image")
    x = layers.ZeroPadding2D(1)(image)
    x = layers.Conv2D(8, 3, strides=2, use_bias=False, name="stem.0")(x)
    x = hard_swish(norm(x, "stem"))

    y = layers.ReLU(6.0)(pointwise(x, 24, "expand"))
    y = layers.DepthwiseConv2D(5, padding="same", use_bias=False, name="depthwise.0")(y)
    y = layers.ReLU(6.0)(norm(y, "depthwise"))
    scale = layers.GlobalAveragePooling2D(keepdims=True)(y)
    scale = layers.Dense(6, activation="relu", name="squeeze")(scale)
    scale = ops.hard_sigmoid(layers.Dense(24, name="excite")(scale))
    x = x + pointwise(y * scale, 8, "project")

    x = layers.ZeroPadding2D(1)(x)
    x = layers.DepthwiseConv2D(3, strides=2, use_bias=False, name="down.0")(x)
    x = layers.ReLU(6.0)(norm(x, "down"))
    x = hard_swish(pointwise(x, 20, "last"))
    x = layers.GlobalAveragePooling2D()(x)
    return Model(image, layers.Dense(7, name="fc")(x))
