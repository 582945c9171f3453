import keras
from keras import layers, ops

WIDTH, HEADS, WORDS, PLACES, LAYERS = 48, 4, 64, 32, 2


class Conv1D(layers.Dense):
    """A linear layer whose weight has the inputs first in the reference, too."""

    canonical_weights = {"kernel": ("weight", None), "bias": ("bias", None)}


class Attention(layers.Layer):
    def __init__(self, name):
        super().__init__(name=name)
        self.c_attn, self.c_proj = Conv1D(3 * WIDTH, name=f"{name}.c_attn"), Conv1D(WIDTH, name=f"{name}.c_proj")

    def call(self, x, past, allowed):
        n, t, _ = x.shape
        q, k, v = (
            ops.transpose(ops.reshape(each, (n, t, HEADS, -1)), (0, 2, 1, 3))
            for each in ops.split(self.c_attn(x), 3, -1)
        )
        if past is not None:
            k, v = ops.concatenate([past[0], k], 2), ops.concatenate([past[1], v], 2)
        scores = ops.where(allowed, q @ ops.transpose(k, (0, 1, 3, 2)) * (WIDTH // HEADS) ** -0.5, -1e30)
        y = ops.softmax(scores, -1) @ v
        return self.c_proj(ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (n, t, WIDTH))), ops.stack([k, v])


class MLP(layers.Layer):
    def __init__(self, name):
        super().__init__(name=name)
        self.c_fc, self.c_proj = Conv1D(4 * WIDTH, name=f"{name}.c_fc"), Conv1D(WIDTH, name=f"{name}.c_proj")

    def call(self, x):
        return self.c_proj(ops.gelu(self.c_fc(x), approximate=True))


class Block(layers.Layer):
    def __init__(self, name):
        super().__init__(name=name)
        self.ln_1, self.ln_2 = (
            layers.LayerNormalization(epsilon=1e-5, name=f"{name}.{each}") for each in ("ln_1", "ln_2")
        )
        self.attn, self.mlp = Attention(f"{name}.attn"), MLP(f"{name}.mlp")

    def call(self, x, past, allowed):
        y, kept = self.attn(self.ln_1(x), past, allowed)
        x = x + y
        return x + self.mlp(self.ln_2(x)), kept


class Cache:
    """layers: for each layer (2, sequences, heads, tokens, size), the keys and the values."""

    def __init__(self, layers):
        self.layers = layers

    def crop(self, change):
        self.layers = [each[:, :, :, :change] for each in self.layers]

    def reorder_cache(self, order):
        self.layers = [ops.take(each, order, 1) for each in self.layers]


class GPT2(keras.Model):
    def __init__(self):
        super().__init__()
        self.wte = layers.Embedding(WORDS, WIDTH, name="transformer.wte")
        self.wpe = layers.Embedding(PLACES, WIDTH, name="transformer.wpe")
        self.blocks = [Block(f"transformer.h.{index}") for index in range(LAYERS)]
        self.ln_f = layers.LayerNormalization(epsilon=1e-5, name="transformer.ln_f")

    def call(self, input_ids, past_key_values=None, use_cache=False, mask=None, position_ids=None):
        n, t = input_ids.shape
        past = past_key_values.layers[0].shape[3] if past_key_values is not None else 0
        if position_ids is None:
            position_ids = ops.broadcast_to(ops.arange(past, past + t), (n, t))
        allowed = ops.arange(past + t)[None] <= ops.arange(past, past + t)[:, None]
        if mask is not None:
            allowed = ops.logical_and(allowed, mask[:, None, None] > 0)
        x, kept = self.wte(input_ids) + self.wpe(position_ids), []
        for index, block in enumerate(self.blocks):
            x, pair = block(x, past_key_values.layers[index] if past_key_values is not None else None, allowed)
            kept.append(pair)
        logits = self.ln_f(x) @ ops.transpose(self.wte.embeddings)
        return {"logits": logits, "past_key_values": Cache(kept)} if use_cache else logits


def build():
    return GPT2()
