import keras
import tensorflow as tf
from keras import layers

RHO = 0.05


def build():
    return keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(24, activation="silu", name="fc1"),
            layers.Dense(24, activation="silu", name="fc2"),
            layers.Dense(5, name="fc3"),
        ]
    )


def train_state(model):
    return keras.optimizers.SGD(0.1, momentum=0.9)


def loss_and_gradients(model, batch):
    with tf.GradientTape() as tape:
        logits = model(batch["x"], training=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], logits))
    return loss, tape.gradient(loss, model.trainable_variables)


def train_step(model, optimizer, batch):
    variables = model.trainable_variables
    loss, gradients = loss_and_gradients(model, batch)
    norm = tf.linalg.global_norm(gradients)
    moves = [RHO * g / (norm + 1e-12) for g in gradients]
    for variable, move in zip(variables, moves):
        variable.assign_add(move)
    sharp, gradients = loss_and_gradients(model, batch)
    for variable, move in zip(variables, moves):
        variable.assign_sub(move)
    optimizer.apply_gradients(zip(gradients, variables))
    return {"loss": loss, "sharp": sharp}
