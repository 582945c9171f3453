import tensorflow as tf
from tensorlayer.layers import Dense, Input, Lambda
from tensorlayer.models import Model


def build():
    inputs = Input((None, 784), name="x")
    x = Dense(512, name="fc1")(inputs)
    x = Lambda(tf.nn.relu, name="relu")(x)
    x = Dense(10, name="fc2")(x)
    return Model(inputs, x)
