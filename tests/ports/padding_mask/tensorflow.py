import keras
from keras import layers, ops


class Attention(layers.Layer):
    def __init__(self, dim, heads, name):
        super().__init__(name=name)
        self.heads, self.size = heads, dim // heads
        self.qkv = layers.Dense(3 * dim, name=f"{name}.qkv")
        self.proj = layers.Dense(dim, name=f"{name}.proj")

    def split(self, x):
        x = ops.reshape(x, (-1, x.shape[1], self.heads, self.size))
        return ops.transpose(x, (0, 2, 1, 3))

    def call(self, x, mask):
        q, k, v = (self.split(part) for part in ops.split(self.qkv(x), 3, -1))
        scores = ops.einsum("nhqd,nhkd->nhqk", q, k) / self.size**0.5
        scores = ops.where(mask[:, None, None, :] > 0, scores, -1e9)
        y = ops.einsum("nhqk,nhkd->nqhd", ops.softmax(scores), v)
        return self.proj(ops.reshape(y, ops.shape(x)))


def build(dim=24, heads=3, classes=5):
    inputs, mask = keras.Input((7, dim)), keras.Input((7,), dtype="int64")
    x = layers.LayerNormalization(epsilon=1e-5, name="norm1")(inputs)
    x = inputs + Attention(dim, heads, name="attn")(x, mask)
    y = layers.LayerNormalization(epsilon=1e-5, name="norm2")(x)
    y = layers.Dense(2 * dim, activation="relu", name="fc1")(y)
    x = x + layers.Dense(dim, name="fc2")(y)
    kept = ops.expand_dims(ops.cast(mask, "float32"), -1)
    pooled = ops.sum(x * kept, 1) / ops.sum(kept, 1)
    return keras.Model([inputs, mask], [layers.Dense(classes, name="head")(pooled), x])
