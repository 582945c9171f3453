import keras
from keras import layers, ops


def dense(units, name):
    return layers.Dense(units, use_bias=False, name=name)


def norm(name):
    return layers.RMSNormalization(epsilon=1e-6, name=name)


def rotary(x, base=10000.0):
    """Rotate the pairs of values of each head, by angles that grow with the position. x: batch, position, head, value."""
    length, size = x.shape[1], x.shape[-1]
    frequencies = base ** (-ops.arange(0, size, 2, dtype="float32") / size)
    angles = ops.arange(length, dtype="float32")[:, None] * frequencies
    angles = ops.concatenate([angles, angles], axis=-1)[:, None, :]
    first, second = ops.split(x, 2, axis=-1)
    return x * ops.cos(angles) + ops.concatenate([-second, first], axis=-1) * ops.sin(angles)


class Attention(layers.Layer):
    def __init__(self, width, heads, shared, name):
        super().__init__(name=name)
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.q = dense(width, f"{name}.q_proj")
        self.k = dense(shared * self.size, f"{name}.k_proj")
        self.v = dense(shared * self.size, f"{name}.v_proj")
        self.o = dense(width, f"{name}.o_proj")

    def call(self, x):
        length, width = x.shape[1:]
        query = rotary(ops.reshape(self.q(x), (-1, length, self.heads, self.size)))
        key = rotary(ops.reshape(self.k(x), (-1, length, self.shared, self.size)))
        value = ops.reshape(self.v(x), (-1, length, self.shared, self.size))
        groups = self.heads // self.shared
        key, value = ops.repeat(key, groups, axis=2), ops.repeat(value, groups, axis=2)
        scores = ops.einsum("nqhd,nkhd->nhqk", query, key) * self.size**-0.5
        places = ops.arange(length)
        scores = ops.where(places[:, None] >= places, scores, -1e9)
        y = ops.einsum("nhqk,nkhd->nqhd", ops.softmax(scores), value)
        return self.o(ops.reshape(y, (-1, length, width)))


class Block(layers.Layer):
    def __init__(self, width, heads, shared, hidden, name):
        super().__init__(name=name)
        self.norm1 = norm(f"{name}.input_layernorm")
        self.attention = Attention(width, heads, shared, f"{name}.self_attn")
        self.norm2 = norm(f"{name}.post_attention_layernorm")
        self.gate = dense(hidden, f"{name}.mlp.gate_proj")
        self.up = dense(hidden, f"{name}.mlp.up_proj")
        self.down = dense(width, f"{name}.mlp.down_proj")

    def call(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(ops.silu(self.gate(y)) * self.up(y))


class Llama(keras.Model):
    def __init__(self, words, width, depth, heads, shared, hidden):
        super().__init__()
        self.embed = layers.Embedding(words, width, name="model.embed_tokens")
        self.blocks = [Block(width, heads, shared, hidden, f"model.layers.{index}") for index in range(depth)]
        self.norm = norm("model.norm")
        self.head = dense(words, "lm_head")

    def call(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build(words=53, length=9, width=24, depth=2, heads=6, shared=2, hidden=40):
    model = Llama(words, width, depth, heads, shared, hidden)
    model(ops.zeros((1, length), dtype="int64"))
    return model
