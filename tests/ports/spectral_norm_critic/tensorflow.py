from keras import Input, Model, layers, ops


def build():
    rows = Input((9,), name="rows")
    x = layers.SpectralNormalization(layers.Dense(14, name="fc1"))(rows)
    x = ops.leaky_relu(x, 0.2)
    y = layers.Dense(12, name="fc2")(x)
    y = layers.LeakyReLU(negative_slope=0.2)(y)
    y = layers.Dense(14, use_bias=False, name="fc3")(y)
    return Model(rows, layers.Dense(4, name="head")(layers.Add()([x, y])))
