import keras
import numpy as np
from keras import layers, ops


def partition(x, size):
    _, h, w, c = x.shape
    x = ops.reshape(x, (-1, h // size, size, w // size, size, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, size * size, c))


def reverse(x, size, h, w):
    c = x.shape[-1]
    x = ops.reshape(x, (-1, h // size, w // size, size, size, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, h, w, c))


def shift_mask(h, w, size, shift):
    rows, columns = (np.searchsorted((n - size, n - shift), np.arange(n), "right") for n in (h, w))
    region = (3 * rows[:, None] + columns).reshape(h // size, size, w // size, size)
    region = region.swapaxes(1, 2).reshape(-1, 1, size * size)
    return np.where(region == region.swapaxes(1, 2), 0, -100).astype("float32")


class WindowAttention(layers.Layer):
    canonical_weights = {"bias": ("bias", None)}

    def __init__(self, dim, heads, mask, name):
        super().__init__(name=name)
        self.dim, self.heads, self.mask = dim, heads, mask
        self.qkv = layers.Dense(3 * dim, name=f"{name}.qkv")
        self.softmax = layers.Softmax(name=f"{name}.softmax")
        self.proj = layers.Dense(dim, name=f"{name}.proj")

    def build(self, shape):
        self.bias = self.add_weight(shape=(self.heads, shape[1], shape[1]), name="bias")

    def call(self, x):
        length, size = x.shape[1], self.dim // self.heads
        qkv = ops.reshape(self.qkv(x), (-1, length, 3, self.heads, size))
        q, k, v = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)), axis=0)
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * size**-0.5 + self.bias
        if self.mask is not None:
            scores = ops.reshape(scores, (-1, len(self.mask), self.heads, length, length))
            scores = ops.reshape(scores + self.mask[:, None], (-1, self.heads, length, length))
        x = ops.matmul(self.softmax(scores), v)
        return self.proj(ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, length, self.dim)))


class Block(layers.Layer):
    def __init__(self, dim, heads, size, shift, h, w, name):
        super().__init__(name=name)
        self.size, self.shift = size, shift
        mask = shift_mask(h, w, size, shift) if shift else None
        self.norm1 = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.norm1")
        self.attn = WindowAttention(dim, heads, mask, name=f"{name}.attn")
        self.norm2 = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.norm2")
        self.fc1 = layers.Dense(2 * dim, activation="gelu", name=f"{name}.fc1")
        self.fc2 = layers.Dense(dim, name=f"{name}.fc2")

    def call(self, x):
        _, h, w, _ = x.shape
        y = self.norm1(x)
        if self.shift:
            y = ops.roll(y, (-self.shift, -self.shift), (1, 2))
        y = reverse(self.attn(partition(y, self.size)), self.size, h, w)
        if self.shift:
            y = ops.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.fc2(self.fc1(self.norm2(x)))


def build(dim=30, heads=3, size=4, h=8, w=12, classes=5):
    image = keras.Input((2 * h, 2 * w, 3), name="x")
    x = layers.Conv2D(dim, 2, 2, name="patch")(image)
    x = Block(dim, heads, size, 0, h, w, name="blocks.0")(x)
    x = Block(dim, heads, size, size // 2, h, w, name="blocks.1")(x)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(classes, name="head")(x))
