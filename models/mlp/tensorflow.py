from keras import Input, Model, layers


def build():
    inputs = Input((784,), name="x")
    x = layers.Dense(512, name="fc1")(inputs)
    x = layers.ReLU(name="relu")(x)
    x = layers.Dense(10, name="fc2")(x)
    return Model(inputs, x, name="mlp")
