import math

import keras
from keras import layers, ops

from xverify.models.keras_layers import Conv2d


def norm(x, name, groups=4):
    return layers.GroupNormalization(groups, epsilon=1e-5, name=name)(x)


def time_embedding(step, size, width):
    """Cosines and sines of the step, at falling frequencies, and two layers."""
    frequencies = ops.exp(-math.log(10000) / (size // 2) * ops.arange(size // 2, dtype="float32"))
    angles = ops.cast(step, "float32")[:, None] * frequencies
    x = ops.concatenate([ops.cos(angles), ops.sin(angles)], axis=-1)
    x = layers.Dense(width, activation="silu", name="time_embedding.linear_1")(x)
    return layers.Dense(width, name="time_embedding.linear_2")(x)


def residual(x, time, width, name):
    y = ops.silu(norm(x, f"{name}.norm1"))
    y = Conv2d(width, 3, padding=1, name=f"{name}.conv1")(y)
    y = y + layers.Dense(width, name=f"{name}.time_emb_proj")(ops.silu(time))[:, None, None, :]
    y = ops.silu(norm(y, f"{name}.norm2"))
    y = Conv2d(width, 3, padding=1, name=f"{name}.conv2")(y)
    if x.shape[-1] != width:
        x = layers.Conv2D(width, 1, name=f"{name}.conv_shortcut")(x)
    return x + y


def attention(x, heads, name):
    _, rows, columns, width = x.shape
    tokens = norm(layers.Reshape((rows * columns, width))(x), f"{name}.group_norm")

    def project(part):
        y = layers.Dense(width, name=f"{name}.{part}")(tokens)
        return layers.Reshape((rows * columns, heads, width // heads))(y)

    scores = ops.einsum("nqhd,nkhd->nhqk", project("to_q"), project("to_k")) / math.sqrt(width // heads)
    y = ops.einsum("nhqk,nkhd->nqhd", ops.softmax(scores, axis=-1), project("to_v"))
    y = layers.Dense(width, name=f"{name}.to_out.0")(layers.Reshape((rows * columns, width))(y))
    return x + layers.Reshape((rows, columns, width))(y)


def build(rows=10, columns=14, widths=(8, 12), heads=2):
    image = keras.Input((rows, columns, 3), name="sample")
    step = keras.Input((), dtype="int64", name="timestep")
    time = time_embedding(step, widths[0], 4 * widths[0])
    x = Conv2d(widths[0], 3, padding=1, name="conv_in")(image)
    skips = [x]
    for level, width in enumerate(widths):
        x = residual(x, time, width, f"down_blocks.{level}.resnets.0")
        skips.append(x)
        if level < len(widths) - 1:
            x = Conv2d(width, 3, 2, padding=1, name=f"down_blocks.{level}.downsamplers.0.conv")(x)
            skips.append(x)
    x = residual(x, time, widths[-1], "mid_block.resnets.0")
    x = attention(x, heads, "mid_block.attentions.0")
    x = residual(x, time, widths[-1], "mid_block.resnets.1")
    for level, width in enumerate(reversed(widths)):
        for index in range(2):
            x = layers.Concatenate()([x, skips.pop()])
            x = residual(x, time, width, f"up_blocks.{level}.resnets.{index}")
        if level < len(widths) - 1:
            x = layers.UpSampling2D(2, interpolation="nearest")(x)
            x = Conv2d(width, 3, padding=1, name=f"up_blocks.{level}.upsamplers.0.conv")(x)
    x = ops.silu(norm(x, "conv_norm_out"))
    return keras.Model([image, step], Conv2d(3, 3, padding=1, name="conv_out")(x), name="unet")
