import keras
from keras import layers, ops


class Attention(layers.Layer):
    def __init__(self, width, heads, name):
        super().__init__(name=name)
        self.heads, self.size = heads, width // heads
        self.q = layers.Dense(width, name=f"{name}.q_proj")
        self.k = layers.Dense(width, use_bias=False, name=f"{name}.k_proj")
        self.v = layers.Dense(width, name=f"{name}.v_proj")
        self.out = layers.Dense(width, name=f"{name}.out_proj")

    def call(self, x):
        length, width = x.shape[1:]
        shape = (-1, length, self.heads, self.size)
        q, k, v = (ops.reshape(part, shape) for part in (self.q(x), self.k(x), self.v(x)))
        weights = ops.softmax(ops.einsum("nqhd,nkhd->nhqk", q * self.size**-0.5, k))
        return self.out(ops.reshape(ops.einsum("nhqk,nkhd->nqhd", weights, v), (-1, length, width)))


class Positions(layers.Layer):
    """Adds a learned vector to every position."""

    def __init__(self, length, width):
        super().__init__(name="positions")
        self.length = length
        self.table = layers.Embedding(length, width, name="embed_positions")

    def call(self, x):
        return x + self.table(ops.arange(self.length))


def norm(name):
    return layers.LayerNormalization(epsilon=1e-5, name=name)


def block(x, heads, hidden, name):
    width = x.shape[-1]
    y = norm(f"{name}.self_attn_layer_norm")(x)
    x = layers.add([x, Attention(width, heads, f"{name}.self_attn")(y)])
    y = norm(f"{name}.final_layer_norm")(x)
    y = layers.Dense(hidden, activation="gelu", name=f"{name}.fc1")(y)
    y = layers.Dense(width, name=f"{name}.fc2")(y)
    return layers.add([x, y])


def build(frames=26, bands=10, width=24, depth=2, heads=3, hidden=40):
    features = keras.Input((frames, bands), name="input_features")
    x = layers.Conv1D(width, 3, padding="same", activation="gelu", name="conv1")(features)
    x = layers.ZeroPadding1D(1)(x)
    x = layers.Conv1D(width, 3, strides=2, activation="gelu", name="conv2")(x)
    x = Positions(x.shape[1], width)(x)
    for index in range(depth):
        x = block(x, heads, hidden, f"layers.{index}")
    return keras.Model(features, norm("layer_norm")(x), name="whisper-encoder")
