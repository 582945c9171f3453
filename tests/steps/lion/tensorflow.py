import keras
import tensorflow as tf
from keras import layers


def build():
    x = inputs = keras.Input((10,))
    x = layers.Dense(20, name="conv")(x)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.Activation("tanh")(x)
    return keras.Model(inputs, layers.Dense(4, name="head")(x))


def train_state(model):
    return keras.optimizers.Lion(learning_rate=1e-3, beta_1=0.9, beta_2=0.99, weight_decay=0.1)


def train_step(model, optimizer, batch):
    with tf.GradientTape() as tape:
        logits = model(batch["x"], training=True)
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(batch["target"], logits, from_logits=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return {"loss": loss}
