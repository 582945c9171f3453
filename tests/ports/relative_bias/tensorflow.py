import keras
import numpy as np
from keras import layers, ops


def buckets(length, count, farthest):
    distance = np.arange(length)[None] - np.arange(length)[:, None]
    half, near = count // 2, count // 4
    size = np.abs(distance)
    with np.errstate(divide="ignore"):
        far = near + np.log(size / near) / np.log(farthest / near) * (half - near)
    return np.where(distance > 0, half, 0) + np.where(size < near, size, np.minimum(far, half - 1)).astype("int32")


class Attention(layers.Layer):
    def __init__(self, dim, heads, length, count, temperature, name):
        super().__init__(name=name)
        self.heads, self.temperature = heads, temperature
        self.q, self.k, self.v, self.o = (layers.Dense(dim, use_bias=False, name=f"{name}.{part}") for part in "qkvo")
        self.bias = layers.Embedding(count, heads, name=f"{name}.bias")
        self.buckets = buckets(length, count, 12)

    def call(self, x):
        q, k, v = (ops.stack(ops.split(p(x), self.heads, -1), 1) for p in (self.q, self.k, self.v))
        bias = ops.transpose(self.bias(ops.convert_to_tensor(self.buckets)), (2, 0, 1))
        scores = (ops.matmul(q, ops.swapaxes(k, -1, -2)) + bias) / self.temperature
        y = ops.softmax(scores, axis=-1) @ v
        return self.o(ops.concatenate(ops.unstack(y, axis=1), -1))


class Encoder(keras.Model):
    def __init__(self, dim, heads, length, count, temperature):
        super().__init__()
        self.norm1 = layers.RMSNormalization(epsilon=1e-6, name="norm1")
        self.attn = Attention(dim, heads, length, count, temperature, name="attn")
        self.norm2 = layers.RMSNormalization(epsilon=1e-6, name="norm2")
        self.wi = layers.Dense(30, activation="relu", use_bias=False, name="wi")
        self.wo = layers.Dense(dim, use_bias=False, name="wo")
        self.head = layers.Dense(4, name="head")

    def call(self, x):
        x = x + self.attn(self.norm1(x))
        x = x + self.wo(self.wi(self.norm2(x)))
        return self.head(x)


def build(dim=18, heads=3, length=10, count=8, temperature=2.5):
    model = Encoder(dim, heads, length, count, temperature)
    model(keras.ops.zeros((1, length, dim)))
    return model
