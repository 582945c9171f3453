from keras import Input, Model, layers


def down(x, filters, name):
    x = layers.ZeroPadding2D(((1, 0), (1, 0)))(x)  # at an even size the stride leaves out what is padded behind
    return layers.Conv2D(filters, 3, strides=2, activation="swish", name=name)(x)


def head(x, outputs, activation, name):
    x = layers.Conv2D(x.shape[-1], 3, padding="same", activation="relu", name=f"{name}.conv")(x)
    return layers.Conv2D(outputs, 1, activation=activation, name=f"{name}.out")(x)


def build():
    image = Input((12, 20, 3), name="image")
    fine = down(image, 8, "down1")
    coarse = down(fine, 14, "down2")
    x = layers.Cropping2D(1)(layers.Conv2DTranspose(8, 4, strides=2, name="up")(coarse))
    x = layers.BatchNormalization(epsilon=1e-5, name="bn")(x)
    x = layers.Add()([x, fine])
    x = layers.Activation("relu")(x)
    return Model(image, {"size": head(x, 2, "softplus", "size"), "heat": head(x, 4, "sigmoid", "heat")})
