from keras import Input, Model, layers, ops


def residual(x, dilation, name):
    width = x.shape[-1]
    y = layers.LeakyReLU(negative_slope=0.1)(x)
    y = layers.Conv2D(width, 3, padding="same", dilation_rate=dilation, name=f"{name}.conv1")(y)
    y = layers.LeakyReLU(negative_slope=0.1)(y)
    return layers.Add()([x, layers.Conv2D(width, 1, name=f"{name}.conv2")(y)])


def build(width=10):
    code = Input((7, 5, 6), name="code")
    x = layers.Conv2D(2 * width, 3, padding="same", name="pre")(code)
    x = layers.LeakyReLU(negative_slope=0.1)(x)
    x = layers.Conv2DTranspose(width, 4, strides=2, padding="same", name="up")(x)
    for index, dilation in enumerate((1, 2)):
        x = residual(x, dilation, f"blocks.{index}")
    x = layers.Conv2D(3, 3, padding="same", use_bias=False, name="post")(ops.leaky_relu(x, 0.01))
    return Model(code, ops.tanh(x))
