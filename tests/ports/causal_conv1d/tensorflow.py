from keras import Input, Model, layers


def block(x, dilation, name):
    width = x.shape[-1]

    def causal(activation, part):
        conv = layers.Conv1D(
            width, 3, padding="causal", dilation_rate=dilation, activation=activation, name=f"{name}.{part}"
        )
        return conv(x)

    z = layers.Multiply()([causal("tanh", "filter"), causal("sigmoid", "gate")])
    out = layers.Add()([x, layers.Conv1D(width, 1, name=f"{name}.residual")(z)])
    return out, layers.Conv1D(14, 1, name=f"{name}.skip")(z)


def build(width=10, depth=3):
    signal = Input((30, 4), name="signal")
    x = layers.Conv1D(width, 1, name="stem")(signal)
    skips = []
    for index in range(depth):
        x, skip = block(x, 2**index, f"blocks.{index}")
        skips.append(skip)
    x = layers.Concatenate()([layers.Add()(skips), x])
    x = layers.Activation("relu")(x)
    x = layers.Conv1D(9, 1, activation="relu", name="head1")(x)
    return Model(signal, layers.Conv1D(5, 1, name="head2")(x))
