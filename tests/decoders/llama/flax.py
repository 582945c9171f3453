import math

import jax.numpy as jnp
from flax import nnx

WIDTH, HEADS, KEYS, WORDS, LAYERS = 48, 4, 2, 64, 2
SIZE = WIDTH // HEADS
BASE, FACTOR, LOW, HIGH, TRAINED = 10000.0, 8.0, 1.0, 4.0, 32


def rates(x):
    """Radians per token of each pair, scaled as in Llama 3.1."""
    plain = BASE ** -(jnp.arange(0, SIZE, 2, dtype=x.dtype) / SIZE)
    waves = 2 * math.pi / plain
    smooth = (TRAINED / waves - LOW) / (HIGH - LOW)
    mixed = (1 - smooth) * plain / FACTOR + smooth * plain
    scaled = jnp.where(waves > TRAINED / LOW, plain / FACTOR, mixed)
    return jnp.where(waves < TRAINED / HIGH, plain, scaled)


def rotated(x, positions):
    angles = positions[:, None, :, None].astype(x.dtype) * rates(x)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * jnp.cos(angles) - b * jnp.sin(angles), b * jnp.cos(angles) + a * jnp.sin(angles)], -1)


class Attention(nnx.Module):
    def __init__(self, rngs):
        self.q_proj = nnx.Linear(WIDTH, HEADS * SIZE, use_bias=False, rngs=rngs)
        self.k_proj = nnx.Linear(WIDTH, KEYS * SIZE, use_bias=False, rngs=rngs)
        self.v_proj = nnx.Linear(WIDTH, KEYS * SIZE, use_bias=False, rngs=rngs)
        self.o_proj = nnx.Linear(HEADS * SIZE, WIDTH, use_bias=False, rngs=rngs)

    def __call__(self, x, past, allowed, positions):
        n, t, _ = x.shape
        made = (
            each(x).reshape(n, t, -1, SIZE).transpose(0, 2, 1, 3) for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k, v = made
        q, k = rotated(q, positions), rotated(k, positions)
        if past is not None:
            k, v = jnp.concatenate([past["keys"], k], 2), jnp.concatenate([past["values"], v], 2)
        kept = {"keys": k, "values": v}
        k, v = jnp.repeat(k, HEADS // KEYS, 1), jnp.repeat(v, HEADS // KEYS, 1)
        scores = jnp.where(allowed, q @ k.transpose(0, 1, 3, 2) * SIZE**-0.5, -1e30)
        y = nnx.softmax(scores, -1) @ v
        return self.o_proj(y.transpose(0, 2, 1, 3).reshape(n, t, -1)), kept


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.gate_proj = nnx.Linear(WIDTH, 64, use_bias=False, rngs=rngs)
        self.up_proj = nnx.Linear(WIDTH, 64, use_bias=False, rngs=rngs)
        self.down_proj = nnx.Linear(64, WIDTH, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return self.down_proj(nnx.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.self_attn, self.mlp = Attention(rngs), MLP(rngs)
        self.input_layernorm = nnx.RMSNorm(WIDTH, epsilon=1e-6, rngs=rngs)
        self.post_attention_layernorm = nnx.RMSNorm(WIDTH, epsilon=1e-6, rngs=rngs)

    def __call__(self, x, past, allowed, positions):
        y, kept = self.self_attn(self.input_layernorm(x), past, allowed, positions)
        x = x + y
        return x + self.mlp(self.post_attention_layernorm(x)), kept


class Trunk(nnx.Module):
    def __init__(self, rngs):
        self.embed_tokens = nnx.Embed(WORDS, WIDTH, rngs=rngs)
        self.layers = nnx.List([Layer(rngs) for _ in range(LAYERS)])
        self.norm = nnx.RMSNorm(WIDTH, epsilon=1e-6, rngs=rngs)


class Llama(nnx.Module):
    def __init__(self, rngs):
        self.model = Trunk(rngs)
        self.lm_head = nnx.Linear(WIDTH, WORDS, use_bias=False, rngs=rngs)

    def __call__(self, tokens, cache=None, use_cache=False, mask=None, positions=None):
        n, t = tokens.shape
        past = cache[0]["keys"].shape[2] if cache is not None else 0
        if positions is None:
            positions = jnp.broadcast_to(jnp.arange(past, past + t), (n, t))
        allowed = jnp.tri(t, past + t, past, dtype=bool)[None, None]
        if mask is not None:
            allowed = allowed & (mask[:, None, None] > 0)
        x, kept = self.model.embed_tokens(tokens), []
        for index, layer in enumerate(self.model.layers):
            x, pair = layer(x, cache[index] if cache is not None else None, allowed, positions)
            kept.append(pair)
        logits = self.lm_head(self.model.norm(x))
        return (logits, kept) if use_cache else logits


def build():
    return Llama(nnx.Rngs(0))
