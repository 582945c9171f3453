import keras
from keras import layers, ops


class Constant(layers.Layer):
    canonical_name = ""
    canonical_weights = {"const": ("const", "h w c -> c h w")}

    def build(self, shape):
        self.const = self.add_weight(shape=(4, 3, 12), initializer="random_normal", name="const")

    def call(self, w):
        return ops.broadcast_to(self.const, (ops.shape(w)[0], 4, 3, 12))


def leaky(x):
    return layers.LeakyReLU(negative_slope=0.2)(x) * 2**0.5


def styled(x, w, filters, name):
    x = layers.Conv2D(filters, 3, padding="same", name=f"{name}.conv")(x)
    scale = layers.Dense(filters, name=f"{name}.style")(w)
    return leaky(layers.Multiply()([x, layers.Reshape((1, 1, filters))(scale)]))


def build():
    z = keras.Input((14,))
    w = z * ops.rsqrt(ops.mean(ops.square(z), axis=1, keepdims=True) + 1e-8)
    w = leaky(layers.Dense(20, name="map1")(w))
    w = leaky(layers.Dense(20, name="map2")(w))
    x = Constant()(w)
    x = styled(x, w, 16, "block1")
    x = styled(layers.UpSampling2D(2)(x), w, 10, "block2")
    x = styled(layers.UpSampling2D(2)(x), w, 8, "block3")
    x = ops.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="reflect")
    image = layers.Conv2D(3, 3, activation="tanh", name="to_rgb")(x)
    return keras.Model(z, image)
