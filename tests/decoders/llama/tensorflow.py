import math

import keras
from keras import layers, ops

WIDTH, HEADS, KEYS, WORDS, LAYERS = 48, 4, 2, 64, 2
SIZE = WIDTH // HEADS
BASE, FACTOR, LOW, HIGH, TRAINED = 10000.0, 8.0, 1.0, 4.0, 32


def rates(x):
    """Radians per token of each pair, scaled as in Llama 3.1."""
    plain = BASE ** -(ops.arange(0, SIZE, 2, dtype=x.dtype) / SIZE)
    waves = 2 * math.pi / plain
    smooth = (TRAINED / waves - LOW) / (HIGH - LOW)
    mixed = (1 - smooth) * plain / FACTOR + smooth * plain
    scaled = ops.where(waves > TRAINED / LOW, plain / FACTOR, mixed)
    return ops.where(waves < TRAINED / HIGH, plain, scaled)


def rotated(x, positions):
    angles = ops.cast(positions, x.dtype)[:, None, :, None] * rates(x)
    a, b = ops.split(x, 2, -1)
    return ops.concatenate([a * ops.cos(angles) - b * ops.sin(angles), b * ops.cos(angles) + a * ops.sin(angles)], -1)


class Attention(layers.Layer):
    def __init__(self, name):
        super().__init__(name=name)
        sizes = {"q_proj": HEADS * SIZE, "k_proj": KEYS * SIZE, "v_proj": KEYS * SIZE, "o_proj": WIDTH}
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            layers.Dense(size, use_bias=False, name=f"{name}.{each}") for each, size in sizes.items()
        )

    def call(self, x, past, allowed, positions):
        n, t, _ = x.shape
        q, k, v = (
            ops.transpose(ops.reshape(each(x), (n, t, -1, SIZE)), (0, 2, 1, 3))
            for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotated(q, positions), rotated(k, positions)
        if past is not None:
            k, v = ops.concatenate([past[0], k], 2), ops.concatenate([past[1], v], 2)
        kept = (k, v)
        k, v = ops.repeat(k, HEADS // KEYS, 1), ops.repeat(v, HEADS // KEYS, 1)
        scores = ops.where(allowed, q @ ops.transpose(k, (0, 1, 3, 2)) * SIZE**-0.5, -1e30)
        y = ops.softmax(scores, -1) @ v
        return self.o_proj(ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (n, t, WIDTH))), kept


class MLP(layers.Layer):
    def __init__(self, name):
        super().__init__(name=name)
        self.gate_proj, self.up_proj, self.down_proj = (
            layers.Dense(size, use_bias=False, name=f"{name}.{each}")
            for each, size in (("gate_proj", 64), ("up_proj", 64), ("down_proj", WIDTH))
        )

    def call(self, x):
        return self.down_proj(ops.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(layers.Layer):
    def __init__(self, name):
        super().__init__(name=name)
        self.self_attn, self.mlp = Attention(f"{name}.self_attn"), MLP(f"{name}.mlp")
        self.input_layernorm = layers.RMSNormalization(epsilon=1e-6, name=f"{name}.input_layernorm")
        self.post_attention_layernorm = layers.RMSNormalization(epsilon=1e-6, name=f"{name}.post_attention_layernorm")

    def call(self, x, past, allowed, positions):
        y, kept = self.self_attn(self.input_layernorm(x), past, allowed, positions)
        x = x + y
        return x + self.mlp(self.post_attention_layernorm(x)), kept


class Llama(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed_tokens = layers.Embedding(WORDS, WIDTH, name="model.embed_tokens")
        self.blocks = [Block(f"model.layers.{index}") for index in range(LAYERS)]
        self.norm = layers.RMSNormalization(epsilon=1e-6, name="model.norm")
        self.lm_head = layers.Dense(WORDS, use_bias=False, name="lm_head")

    def call(self, tokens, cache=None, use_cache=False, attention_mask=None, positions=None):
        n, t = tokens.shape
        past = cache[0][0].shape[2] if cache is not None else 0
        if positions is None:
            positions = ops.broadcast_to(ops.arange(past, past + t), (n, t))
        allowed = ops.arange(past + t)[None] <= ops.arange(past, past + t)[:, None]
        if attention_mask is not None:
            allowed = ops.logical_and(allowed, attention_mask[:, None, None] > 0)
        x, kept = self.embed_tokens(tokens), []
        for index, block in enumerate(self.blocks):
            x, pair = block(x, cache[index] if cache is not None else None, allowed, positions)
            kept.append(pair)
        logits = self.lm_head(self.norm(x))
        return (logits, kept) if use_cache else logits


def build():
    return Llama()
