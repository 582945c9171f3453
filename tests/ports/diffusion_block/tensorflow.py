import math

import keras
from keras import layers, ops


class TimeEmbedding(layers.Layer):
    """Sines and cosines of the time step, at frequencies from 1 down to almost 1/10000."""

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.half = dim // 2

    def call(self, t):
        freqs = ops.exp(ops.arange(self.half, dtype="float32") * -(math.log(10000) / self.half))
        angles = ops.expand_dims(ops.cast(t, "float32"), 1) * freqs
        return ops.concatenate([ops.cos(angles), ops.sin(angles)], axis=-1)


def norm_swish(x, groups, name):
    x = layers.GroupNormalization(groups, epsilon=1e-5, name=name)(x)
    return layers.Activation("swish")(x)


def res_block(x, emb, width, groups, name):
    skip = x
    if x.shape[-1] != width:
        skip = layers.Conv2D(width, 1, name=f"{name}.shortcut")(x)
    x = norm_swish(x, groups, f"{name}.norm1")
    x = layers.Conv2D(width, 3, padding="same", name=f"{name}.conv1")(x)
    emb = layers.Dense(2 * width, name=f"{name}.emb_proj")(layers.Activation("swish")(emb))
    scale, shift = ops.split(layers.Reshape((1, 1, 2 * width))(emb), 2, axis=-1)
    x = layers.GroupNormalization(groups, epsilon=1e-5, name=f"{name}.norm2")(x)
    x = x * (1 + scale) + shift
    x = layers.Activation("swish")(x)
    x = layers.Conv2D(width, 3, padding="same", name=f"{name}.conv2")(x)
    return layers.Add()([x, skip])


def build(dim=32, width=20, groups=4):
    image = keras.Input((10, 14, 3), name="x")
    t = keras.Input((), dtype="int64", name="t")
    emb = TimeEmbedding(dim)(t)
    emb = layers.Dense(2 * dim, activation="swish", name="time_mlp.0")(emb)
    emb = layers.Dense(2 * dim, name="time_mlp.2")(emb)
    x = layers.Conv2D(12, 3, padding="same", name="conv_in")(image)
    x = res_block(x, emb, width, groups, "block1")
    x = res_block(x, emb, width, groups, "block2")
    x = norm_swish(x, groups, "norm_out")
    x = layers.Conv2D(3, 3, padding="same", name="conv_out")(x)
    return keras.Model([image, t], x)
