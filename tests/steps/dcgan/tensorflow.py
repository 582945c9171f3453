import keras
import tensorflow as tf
from keras import layers


def norm(name):
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)


def generator():
    z = keras.Input((6,))
    x = layers.Dense(32, use_bias=False, name="netG.fc")(z)
    x = layers.Permute((2, 3, 1))(layers.Reshape((8, 2, 2))(x))
    x = layers.ReLU()(norm("netG.bn0")(x))
    x = layers.Conv2DTranspose(6, 4, 2, padding="same", use_bias=False, name="netG.up1")(x)
    x = layers.ReLU()(norm("netG.bn1")(x))
    x = layers.Conv2DTranspose(1, 4, 2, padding="same", activation="tanh", name="netG.up2")(x)
    return keras.Model(z, x)


def discriminator():
    image = keras.Input((8, 8, 1))
    x = layers.Conv2D(6, 4, 2, padding="same", name="netD.conv1")(image)
    x = layers.LeakyReLU(negative_slope=0.2)(x)
    x = layers.Conv2D(8, 4, 2, padding="same", use_bias=False, name="netD.conv2")(x)
    x = layers.LeakyReLU(negative_slope=0.2)(norm("netD.bn2")(x))
    x = layers.Flatten()(layers.Conv2D(1, 2, name="netD.out")(x))
    return keras.Model(image, x)


class DCGAN(keras.Model):
    def __init__(self):
        super().__init__()
        self.netG, self.netD = generator(), discriminator()

    def call(self, z, training=False):
        return self.netG(z, training=training)


build = DCGAN


def train_state(model):
    return {
        "optimizerD": keras.optimizers.Adam(2e-3, beta_1=0.5, beta_2=0.999, epsilon=1e-8),
        "optimizerG": keras.optimizers.Adam(2e-3, beta_1=0.5, beta_2=0.999, epsilon=1e-8),
    }


def bce(target, logits):
    labels = tf.fill(tf.shape(logits), target)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def train_step(model, state, batch):
    with tf.GradientTape() as tape_g:
        fake = model.netG(batch["z"], training=True)
        with tape_g.stop_recording():
            with tf.GradientTape() as tape_d:
                loss_d = bce(1.0, model.netD(batch["real"], training=True))
                loss_d += bce(0.0, model.netD(fake, training=True))
            variables = model.netD.trainable_variables
            state["optimizerD"].apply(tape_d.gradient(loss_d, variables), variables)
        loss_g = bce(1.0, model.netD(fake, training=True))
    variables = model.netG.trainable_variables
    state["optimizerG"].apply(tape_g.gradient(loss_g, variables), variables)
    return {"errD": loss_d, "errG": loss_g}
