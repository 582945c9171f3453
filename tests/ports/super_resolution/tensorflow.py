import keras
from keras import layers, ops


def pixel_shuffle(scale):
    def shuffle(x):
        _, h, w, c = x.shape
        x = ops.reshape(x, (-1, h, w, c // scale**2, scale, scale))
        x = ops.transpose(x, (0, 1, 4, 2, 5, 3))
        return ops.reshape(x, (-1, h * scale, w * scale, c // scale**2))

    return layers.Lambda(shuffle, name="pixel_shuffle")


def residual_block(x, name):
    width = x.shape[-1]
    y = layers.Conv2D(width, 3, dilation_rate=2, padding="same", name=f"{name}.conv1")(x)
    y = layers.PReLU(shared_axes=[1, 2], name=f"{name}.act")(y)
    y = layers.Conv2D(width, 3, padding="same", name=f"{name}.conv2")(y)
    y = layers.Rescaling(0.2)(y)
    return layers.Add()([x, y])


def build(scale=3, width=14, blocks=2):
    image = keras.Input((8, 10, 3), name="x")
    x = ops.pad(image, [[0, 0], [2, 2], [2, 2], [0, 0]], mode="reflect")
    x = layers.Conv2D(width, 5, name="head")(x)
    for index in range(blocks):
        x = residual_block(x, f"body.{index}")
    x = layers.Conv2D(3 * scale**2, 3, padding="same", name="tail")(x)
    skip = layers.UpSampling2D(scale, interpolation="bilinear")(image)
    return keras.Model(image, layers.Add()([pixel_shuffle(scale)(x), skip]))
