import keras
from keras import layers, ops


class Sampling(layers.Layer):
    def call(self, mean, logvar, training=False):
        if not training:
            return mean
        return mean + keras.random.normal(ops.shape(mean)) * ops.exp(0.5 * logvar)


def make_encoder(latent):
    image = keras.Input((16, 12, 1))
    x = layers.Conv2D(8, 4, 2, padding="same", activation="leaky_relu", name="encoder.conv1")(image)
    x = layers.Conv2D(16, 4, 2, padding="same", activation="leaky_relu", name="encoder.conv2")(x)
    x = layers.Flatten()(layers.Permute((3, 1, 2))(x))
    mean = layers.Dense(latent, name="encoder.to_mean")(x)
    logvar = layers.Dense(latent, name="encoder.to_logvar")(x)
    return keras.Model(image, [mean, logvar], name="encoder")


def make_decoder(latent):
    return keras.Sequential(
        [
            layers.Input((latent,)),
            layers.Dense(16 * 4 * 3, activation="leaky_relu", name="decoder.fc"),
            layers.Reshape((16, 4, 3)),
            layers.Permute((2, 3, 1)),
            layers.Conv2DTranspose(8, 4, 2, padding="same", activation="leaky_relu", name="decoder.up1"),
            layers.Conv2DTranspose(1, 4, 2, padding="same", activation="sigmoid", name="decoder.up2"),
        ],
        name="decoder",
    )


def build(latent=7):
    image = keras.Input((16, 12, 1))
    mean, logvar = make_encoder(latent)(image)
    z = Sampling()(mean, logvar)
    return keras.Model(image, [make_decoder(latent)(z), mean, logvar])
