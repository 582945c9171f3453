import math

import jax.numpy as jnp
import numpy as np
from jax import nn

WIDTH, HEADS, KEYS, WORDS, LAYERS, WIDER = 48, 4, 2, 64, 2, 64
SIZE = WIDTH // HEADS
BASE, FACTOR, LOW, HIGH, TRAINED = 10000.0, 8.0, 1.0, 4.0, 32
SHAPES = {
    "self_attn.q_proj": (HEADS * SIZE, WIDTH),
    "self_attn.k_proj": (KEYS * SIZE, WIDTH),
    "self_attn.v_proj": (KEYS * SIZE, WIDTH),
    "self_attn.o_proj": (WIDTH, HEADS * SIZE),
    "mlp.gate_proj": (WIDER, WIDTH),
    "mlp.up_proj": (WIDER, WIDTH),
    "mlp.down_proj": (WIDTH, WIDER),
    "input_layernorm": (WIDTH,),
    "post_attention_layernorm": (WIDTH,),
}


def rates(dtype):
    """Radians per token of each pair, scaled as in Llama 3.1."""
    plain = BASE ** -(np.arange(0, SIZE, 2) / SIZE)
    waves = 2 * math.pi / plain
    smooth = (TRAINED / waves - LOW) / (HIGH - LOW)
    mixed = (1 - smooth) * plain / FACTOR + smooth * plain
    scaled = np.where(waves > TRAINED / LOW, plain / FACTOR, mixed)
    return jnp.asarray(np.where(waves < TRAINED / HIGH, plain, scaled), dtype)


def rotated(x, positions):
    angles = positions[:, None, :, None].astype(x.dtype) * rates(x.dtype)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * jnp.cos(angles) - b * jnp.sin(angles), b * jnp.cos(angles) + a * jnp.sin(angles)], -1)


def normed(x, weight):
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * weight


def attention(w, name, x, past, allowed, positions):
    n, t, _ = x.shape

    def heads(part):
        return (x @ w[f"{name}.{part}.weight"].T).reshape(n, t, -1, SIZE).transpose(0, 2, 1, 3)

    q, k, v = rotated(heads("q_proj"), positions), rotated(heads("k_proj"), positions), heads("v_proj")
    if past is not None:
        k, v = jnp.concatenate([past[0], k], 2), jnp.concatenate([past[1], v], 2)
    kept = (k, v)
    k, v = jnp.repeat(k, HEADS // KEYS, 1), jnp.repeat(v, HEADS // KEYS, 1)
    scores = jnp.where(allowed, q @ k.transpose(0, 1, 3, 2) * SIZE**-0.5, -1e30)
    y = nn.softmax(scores, -1) @ v
    return y.transpose(0, 2, 1, 3).reshape(n, t, -1) @ w[f"{name}.o_proj.weight"].T, kept


def mlp(w, name, x):
    gate = nn.silu(x @ w[f"{name}.gate_proj.weight"].T)
    return gate * (x @ w[f"{name}.up_proj.weight"].T) @ w[f"{name}.down_proj.weight"].T


class Llama:
    def __init__(self):
        shapes = {"model.embed_tokens": (WORDS, WIDTH), "model.norm": (WIDTH,), "lm_head": (WORDS, WIDTH)}
        for index in range(LAYERS):
            shapes |= {f"model.layers.{index}.{name}": shape for name, shape in SHAPES.items()}
        self.weights = {f"{name}.weight": np.zeros(shape, np.float32) for name, shape in shapes.items()}

    def apply(self, w, tokens, cache=None, use_cache=False, mask=None, positions=None):
        n, t = tokens.shape
        past = cache[0][0].shape[2] if cache is not None else 0
        if positions is None:
            positions = jnp.broadcast_to(jnp.arange(past, past + t), (n, t))
        allowed = jnp.tri(t, past + t, past, dtype=bool)[None, None]
        if mask is not None:
            allowed = allowed & (mask[:, None, None] > 0)
        x, kept = w["model.embed_tokens.weight"][tokens], []
        for index in range(LAYERS):
            name, held = f"model.layers.{index}", cache[index] if cache is not None else None
            y = normed(x, w[f"{name}.input_layernorm.weight"])
            y, pair = attention(w, f"{name}.self_attn", y, held, allowed, positions)
            x = x + y
            x = x + mlp(w, f"{name}.mlp", normed(x, w[f"{name}.post_attention_layernorm.weight"]))
            kept.append(pair)
        logits = normed(x, w["model.norm.weight"]) @ w["lm_head.weight"].T
        return (logits, tuple(kept)) if use_cache else logits


def build():
    return Llama()
