import keras
from keras import layers


def downsample(filters, name):
    return keras.Sequential(
        [
            layers.Conv2D(filters, 4, strides=2, padding="same", use_bias=False, name=f"{name}.conv"),
            layers.BatchNormalization(epsilon=1e-5, name=f"{name}.norm"),
            layers.LeakyReLU(0.2, name=f"{name}.act"),
        ],
        name=name,
    )


def upsample(filters, name):
    return keras.Sequential(
        [
            layers.Conv2DTranspose(filters, 4, strides=2, padding="same", use_bias=False, name=f"{name}.conv"),
            layers.BatchNormalization(epsilon=1e-5, name=f"{name}.norm"),
            layers.ReLU(),
        ],
        name=name,
    )


def build(widths=(10, 18, 26), outputs=2):
    inputs = keras.Input((16, 24, 3), name="x")
    x, skips = inputs, []
    for index, width in enumerate(widths, start=1):
        x = downsample(width, f"down{index}")(x)
        skips.append(x)
    for index in (2, 1):
        skip = skips[index - 1]
        x = upsample(skip.shape[-1], f"up{index}")(x)
        x = layers.Concatenate()([x, skip])
    x = layers.Conv2DTranspose(outputs, 3, strides=2, name="last")(x)
    x = layers.Cropping2D(((1, 0), (1, 0)))(x)
    return keras.Model(inputs, layers.Activation("tanh")(x))
