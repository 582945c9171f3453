import keras
import numpy as np
from keras import layers, ops


def sinusoids(length, dim):
    pos = np.arange(length)[:, None]
    rates = 1 / np.power(10000.0, np.arange(0, dim, 2) / dim)
    table = np.zeros((length, dim), "float32")
    table[:, 0::2] = np.sin(pos * rates)
    table[:, 1::2] = np.cos(pos * rates)
    return table


def feed_forward(x, dim, name):
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.norm")(x)
    y = layers.Dense(4 * dim, activation="swish", name=f"{name}.up")(y)
    y = layers.Dense(dim, name=f"{name}.down")(y)
    return x + 0.5 * y


def attention(x, mask, dim, heads, name):
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.norm")(x)
    t = x.shape[1]

    def heads_of(part):
        z = layers.Dense(dim, name=f"{name}.{part}")(y)
        return ops.transpose(ops.reshape(z, (-1, t, heads, dim // heads)), (0, 2, 1, 3))

    q, k, v = heads_of("q"), heads_of("k"), heads_of("v")
    scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / (dim // heads) ** 0.5
    scores = ops.where(mask[:, None, None, :], scores, -1e9)
    y = ops.matmul(ops.softmax(scores), v)
    y = ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, t, dim))
    return x + layers.Dense(dim, name=f"{name}.out")(y)


def conv_module(x, mask, dim, kernel, name):
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.norm")(x)
    y = layers.Conv1D(2 * dim, 1, name=f"{name}.pointwise1")(y)
    a, gate = ops.split(y, 2, axis=-1)
    y = a * ops.sigmoid(gate)
    y = y * ops.cast(mask[:, :, None], y.dtype)
    y = layers.DepthwiseConv1D(kernel, padding="same", name=f"{name}.depthwise")(y)
    y = layers.BatchNormalization(epsilon=1e-5, momentum=0.9, name=f"{name}.batch_norm")(y)
    y = layers.Activation("swish")(y)
    return x + layers.Conv1D(dim, 1, name=f"{name}.pointwise2")(y)


def build(mels=20, channels=6, dim=16, heads=2, kernel=5, characters=15, depth=1):
    audio = keras.Input((33, mels), name="mels")
    lengths = keras.Input((), dtype="int64", name="lengths")
    x = ops.expand_dims(audio, -1)
    x = layers.Conv2D(channels, 3, strides=2, activation="relu", name="subsampling.conv1")(x)
    x = layers.Conv2D(channels, 3, strides=2, activation="relu", name="subsampling.conv2")(x)
    _, t, f, c = x.shape
    x = layers.Reshape((t, c * f))(ops.transpose(x, (0, 1, 3, 2)))
    x = layers.Dense(dim, name="subsampling.out")(x)
    frames = ((lengths - 1) // 2 - 1) // 2
    mask = frames[:, None] > ops.arange(t, dtype="int64")[None]
    x = x * dim**0.5 + sinusoids(t, dim)
    for i in range(depth):
        name = f"blocks.{i}"
        x = feed_forward(x, dim, f"{name}.ff1")
        x = attention(x, mask, dim, heads, f"{name}.attention")
        x = conv_module(x, mask, dim, kernel, f"{name}.conv")
        x = feed_forward(x, dim, f"{name}.ff2")
        x = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.norm")(x)
    logits = layers.Dense(characters, name="ctc")(x)
    return keras.Model([audio, lengths], ops.log_softmax(logits, axis=-1))
