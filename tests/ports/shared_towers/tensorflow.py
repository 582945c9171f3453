import keras
from keras import layers, ops


def encoder(width):
    return keras.Sequential(
        [
            layers.Input((16, 12, 2)),
            layers.Conv2D(8, 3, padding="same", name="encoder.conv1"),
            layers.GroupNormalization(4, epsilon=1e-5, name="encoder.norm"),
            layers.LeakyReLU(0.2),
            layers.AveragePooling2D(2),
            layers.Conv2D(12, 3, padding="same", activation="relu", name="encoder.conv2"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(width, name="encoder.fc"),
            layers.UnitNormalization(),
        ],
        name="encoder",
    )


def build(width=10):
    left, right = keras.Input((16, 12, 2), name="left"), keras.Input((16, 12, 2), name="right")
    shared = encoder(width)
    b = shared(right)
    a = shared(left)
    apart = ops.abs(layers.Subtract()([b, a]))
    together = layers.Multiply()([b, a])
    x = layers.Concatenate()([apart, together])
    x = layers.Dense(9, activation="tanh", name="hidden")(x)
    return keras.Model([left, right], layers.Dense(3, name="out")(x))
