import keras
from keras import layers, ops


def dense(units, name, **more):
    return layers.Dense(units, use_bias=False, name=name, **more)


def norm(name):
    return layers.RMSNormalization(epsilon=1e-5, name=name)


class Rotary(layers.Layer):
    def __init__(self, base=10000.0):
        super().__init__()
        self.base = base

    def call(self, x):
        length, size = x.shape[1], x.shape[-1]
        positions = ops.arange(0, length, dtype="float32")
        steps = ops.arange(0, size, 2, dtype="float32")
        angles = positions[:, None] / ops.power(self.base, steps / size)
        cos, sin = ops.cos(angles)[:, None], ops.sin(angles)[:, None]
        a, b = ops.split(x, 2, axis=-1)
        return ops.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def attention(x, heads, shared):
    length, dim = x.shape[1:]
    size = dim // heads
    q = layers.Reshape((length, heads, size))(dense(dim, "attn.q_proj")(x))
    k = layers.Reshape((length, shared, size))(dense(shared * size, "attn.k_proj")(x))
    v = layers.Reshape((length, shared, size))(dense(shared * size, "attn.v_proj")(x))
    q, k = Rotary()(q), Rotary()(k)
    k, v = ops.repeat(k, heads // shared, axis=2), ops.repeat(v, heads // shared, axis=2)
    scores = ops.einsum("nqhd,nkhd->nhqk", q, k) / size**0.5
    allowed = ops.tril(ops.ones((length, length)))
    weights = ops.softmax(scores + (1 - allowed) * -1e9)
    y = ops.einsum("nhqk,nkhd->nqhd", weights, v)
    return dense(dim, "attn.o_proj")(layers.Reshape((length, dim))(y))


def build(words=50, dim=32, heads=4, shared=2, length=9):
    tokens = keras.Input((length,), dtype="int64")
    x = layers.Embedding(words, dim, name="embed")(tokens)
    x = x + attention(norm("norm1")(x), heads, shared)
    y = norm("norm2")(x)
    y = dense(40, "gate", activation="silu")(y) * dense(40, "up")(y)
    x = x + dense(dim, "down")(y)
    return keras.Model(tokens, dense(words, "head")(norm("norm")(x)))
