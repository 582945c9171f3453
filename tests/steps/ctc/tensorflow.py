import keras
import tensorflow as tf
from keras import layers


def build():
    sound = keras.Input((16, 6), name="sound")
    x = layers.Dense(20, activation="relu", name="frame")(sound)
    x = layers.GRU(12, return_sequences=True, name="rnn")(x)
    return keras.Model(sound, layers.Dense(8, name="head")(x))


def train_state(model):
    return keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True)


def train_step(model, optimizer, batch):
    with tf.GradientTape() as tape:
        logits = model(batch["sound"], training=True)
        each = tf.nn.ctc_loss(
            labels=tf.cast(batch["labels"], tf.int32),
            logits=logits,
            label_length=tf.cast(batch["label_lengths"], tf.int32),
            logit_length=tf.cast(batch["lengths"], tf.int32),
            logits_time_major=False,
            blank_index=0,
        )
        # torch's mean divides every loss by the number of its labels.
        loss = tf.reduce_mean(each / tf.cast(batch["label_lengths"], tf.float32))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return {"ctc": loss}
