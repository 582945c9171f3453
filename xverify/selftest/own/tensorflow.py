import keras
import tensorflow as tf
from keras import layers


def build():
    x = inputs = keras.Input((784,), name="x")
    x = layers.Dense(512, activation="relu", name="fc1")(x)
    return keras.Model(inputs, layers.Dense(10, name="fc2")(x))


def train_state(model):
    return keras.optimizers.AdamW(1e-3, weight_decay=1e-2, epsilon=1e-8)


def train_step(model, optimizer, batch):
    variables, parts = model.trainable_variables, []
    for x, label in zip(tf.split(batch["x"], 2), tf.split(batch["label"], 2)):
        with tf.GradientTape() as tape:
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(label, model(x, training=True))
            loss = tf.reduce_mean(each) / 2
        parts.append((loss, tape.gradient(loss, variables)))
    (first, of_first), (second, of_second) = parts
    gradients, _ = tf.clip_by_global_norm([a + b for a, b in zip(of_first, of_second)], 1.0)
    optimizer.apply(gradients, variables)
    return {"loss": first + second}
