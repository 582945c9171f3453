import math

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, KEYS, WORDS, LAYERS = 48, 4, 2, 64, 2
SIZE = WIDTH // HEADS
BASE, FACTOR, LOW, HIGH, TRAINED = 10000.0, 8.0, 1.0, 4.0, 32


def rates(x):
    """Radians per token of each pair, scaled as in Llama 3.1."""
    plain = BASE ** -(torch.arange(0, SIZE, 2, dtype=x.dtype, device=x.device) / SIZE)
    waves = 2 * math.pi / plain
    smooth = (TRAINED / waves - LOW) / (HIGH - LOW)
    mixed = (1 - smooth) * plain / FACTOR + smooth * plain
    scaled = torch.where(waves > TRAINED / LOW, plain / FACTOR, mixed)
    return torch.where(waves < TRAINED / HIGH, plain, scaled)


def rotated(x, positions):
    angles = positions[:, None, :, None].to(x.dtype) * rates(x)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
        self.k_proj = nn.Linear(WIDTH, KEYS * SIZE, bias=False)
        self.v_proj = nn.Linear(WIDTH, KEYS * SIZE, bias=False)
        self.o_proj = nn.Linear(HEADS * SIZE, WIDTH, bias=False)

    def forward(self, x, past, allowed, positions):
        n, t, _ = x.shape
        q, k, v = (each(x).view(n, t, -1, SIZE).transpose(1, 2) for each in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotated(q, positions), rotated(k, positions)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        kept = (k, v)
        k, v = k.repeat_interleave(HEADS // KEYS, 1), v.repeat_interleave(HEADS // KEYS, 1)
        scores = (q @ k.transpose(2, 3)) * SIZE**-0.5
        weights = scores.masked_fill(~allowed, -1e30).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(n, t, -1)), kept


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, 64, bias=False), nn.Linear(WIDTH, 64, bias=False)
        self.down_proj = nn.Linear(64, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = Attention(), MLP()
        self.input_layernorm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.post_attention_layernorm = nn.RMSNorm(WIDTH, eps=1e-6)

    def forward(self, x, past, allowed, positions):
        y, kept = self.self_attn(self.input_layernorm(x), past, allowed, positions)
        x = x + y
        return x + self.mlp(self.post_attention_layernorm(x)), kept


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)


class Cache:
    """Keys and values of all layers: (sequences, heads, tokens, size)."""

    def __init__(self, pairs):
        self.pairs = pairs

    def crop(self, change):
        self.pairs = [(k[:, :, :change], v[:, :, :change]) for k, v in self.pairs]

    def reorder_cache(self, order):
        self.pairs = [(k[order], v[order]) for k, v in self.pairs]


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Trunk()
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens, cache=None, use_cache=False, mask=None, positions=None):
        n, t = tokens.shape
        past = cache.pairs[0][0].shape[2] if cache is not None else 0
        if positions is None:
            positions = torch.arange(past, past + t, device=tokens.device).expand(n, t)
        allowed = torch.ones(t, past + t, dtype=torch.bool, device=tokens.device).tril(past)[None, None]
        if mask is not None:
            allowed = allowed & mask.bool()[:, None, None]
        x, pairs = self.model.embed_tokens(tokens), []
        for index, layer in enumerate(self.model.layers):
            x, pair = layer(x, cache.pairs[index] if cache is not None else None, allowed, positions)
            pairs.append(pair)
        logits = self.lm_head(self.model.norm(x))
        return (logits, Cache(pairs)) if use_cache else logits


def build():
    return Llama()
