from keras import Input, Model, layers


def norm_relu(x, name):
    x = layers.BatchNormalization(epsilon=1e-5, name=name)(x)
    return layers.ReLU()(x)


def dense_layer(x, growth, name):
    y = norm_relu(x, f"{name}.norm1")
    y = layers.Conv2D(2 * growth, 1, use_bias=False, name=f"{name}.conv1")(y)
    y = norm_relu(y, f"{name}.norm2")
    y = layers.Conv2D(growth, 3, padding="same", use_bias=False, name=f"{name}.conv2")(y)
    return layers.Concatenate()([x, y])


def transition(x, name):
    x = norm_relu(x, f"{name}.norm")
    x = layers.Conv2D(x.shape[-1] // 2, 1, use_bias=False, name=f"{name}.conv")(x)
    x = layers.ZeroPadding2D(1)(x)
    return layers.AveragePooling2D(3, 2, name=f"{name}.pool")(x)


def build(width=14, growth=6, classes=8):
    inputs = Input((9, 13, 3), name="x")
    x = layers.Conv2D(width, 3, padding="same", name="stem")(inputs)
    for index in range(3):
        x = dense_layer(x, growth, f"block1.{index}")
    x = transition(x, "transition")
    for index in range(2):
        x = dense_layer(x, growth, f"block2.{index}")
    x = norm_relu(x, "norm")
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(classes, name="classifier")(x)
    return Model(inputs, x, name="dense_block")
