import keras
import tensorflow as tf
from keras import layers

DECAY = 1e-2


def build():
    return keras.Sequential(
        [
            keras.Input((10,)),
            layers.Dense(20, activation="tanh", name="backbone"),
            layers.Dense(20, activation="relu", name="projector.0"),
            layers.Dense(8, name="projector.2"),
        ]
    )


def train_state(model):
    return keras.optimizers.SGD(learning_rate=0.1, momentum=0.9)


def nt_xent(z1, z2, temperature=0.5):
    z = tf.concat([z1, z2], axis=0)
    z = tf.math.l2_normalize(z, axis=1)
    n = tf.shape(z1)[0]
    logits = tf.matmul(z, z, transpose_b=True) / temperature
    logits -= 1e9 * tf.eye(2 * n)
    labels = tf.concat([tf.range(n) + n, tf.range(n)], axis=0)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def train_step(model, optimizer, batch):
    with tf.GradientTape() as tape:
        loss = nt_xent(model(batch["view1"], training=True), model(batch["view2"], training=True))
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    gradients = [g + DECAY * v for g, v in zip(gradients, variables)]  # as torch's SGD does
    optimizer.apply_gradients(zip(gradients, variables))
    return {"nt_xent": loss}
