from keras import Input, Model, layers


def build():
    image = Input((14, 22, 3), name="image")
    x = layers.ZeroPadding2D(2)(image)
    x = layers.Conv2D(12, 5, strides=2, name="stem")(x)
    x = layers.BatchNormalization(epsilon=1e-5, name="bn")(x)
    x = layers.LeakyReLU(negative_slope=0.1)(x)
    x = layers.MaxPooling2D(3, strides=1, padding="same")(x)

    near = layers.Conv2D(8, 1, activation="relu", name="near")(x)
    far = layers.Conv2D(10, 3, padding="same", dilation_rate=2, activation="relu", name="far")(x)
    x = layers.Concatenate()([near, far])

    x = layers.ZeroPadding2D(1)(x)
    x = layers.Conv2D(16, 3, strides=2, activation="elu", name="merge")(x)
    x = layers.AveragePooling2D(2)(x)
    x = layers.Permute((3, 1, 2))(x)  # torch flattens C, H, W
    x = layers.Flatten()(x)
    x = layers.Dense(20, activation="relu", name="fc1")(x)
    return Model(image, layers.Dense(7, name="fc2")(x))
