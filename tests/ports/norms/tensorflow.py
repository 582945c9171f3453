import keras
from keras import layers


def build():
    return keras.Sequential(
        [
            layers.Input((14, 11, 3)),
            layers.Conv2D(12, 3, padding="same", name="conv1"),
            layers.GroupNormalization(4, epsilon=1e-5, name="gn"),
            layers.ReLU(),
            layers.ZeroPadding2D(1),
            layers.Conv2D(10, 3, strides=2, use_bias=False, name="conv2"),
            # With as many groups as channels, it is an instance norm.
            layers.GroupNormalization(groups=-1, epsilon=1e-5, name="inorm"),
            layers.ReLU(),
            layers.Conv2D(16, 3, use_bias=False, name="conv3"),
            layers.BatchNormalization(name="bn"),
            layers.ReLU(),
            layers.Reshape((20, 16)),
            layers.LayerNormalization(epsilon=1e-5, center=False, scale=False, name="ln"),
            layers.Dense(24, activation="silu", name="fc1"),
            layers.RMSNormalization(epsilon=1e-5, name="rms"),
            layers.Dense(8, name="fc2"),
            layers.UnitNormalization(axis=-1),
        ]
    )
