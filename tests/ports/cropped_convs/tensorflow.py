from keras import Input, Model, layers


def build(width=8):
    signal = Input((15, 4), name="signal")
    x = layers.Conv1D(width, 1, name="stem")(signal)
    y = layers.Conv1D(width, 6, groups=2, activation="gelu", name="position")(layers.ZeroPadding1D((3, 2))(x))
    x = layers.Add()([x, y])
    y = layers.Conv1D(width, 4, activation="gelu", name="late")(layers.ZeroPadding1D((1, 2))(x))
    x = layers.Add()([x, y])
    y = layers.Conv1D(width, 3, padding="causal", dilation_rate=2, name="causal")(x)
    x = layers.Add()([x, layers.Activation("silu")(y)])
    y = layers.Conv1D(width, 5, padding="same", activation="tanh", name="inner")(x)
    x = layers.Add()([x, y])
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    return Model(signal, layers.Conv1D(5, 1, name="head")(x))
