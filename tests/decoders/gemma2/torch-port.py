import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, KEYS, SIZE, WORDS, LAYERS = 48, 4, 2, 12, 64, 2
WINDOW, SCALE, SCORE_CAP, LOGIT_CAP = 6, 12**-0.5, 5.0, 3.0


def capped(x, cap):
    return cap * torch.tanh(x / cap)


def rotated(x, positions):
    rates = 10000.0 ** -(torch.arange(0, SIZE, 2, dtype=x.dtype, device=x.device) / SIZE)
    angles = positions[:, None, :, None].to(x.dtype) * rates
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Norm(nn.Module):
    """RMS norm whose scale is one plus its weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


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
        scores = capped((q @ k.transpose(2, 3)) * SCALE, SCORE_CAP)
        weights = scores.masked_fill(~allowed, -1e30).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(n, t, -1)), kept


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, 64, bias=False), nn.Linear(WIDTH, 64, bias=False)
        self.down_proj = nn.Linear(64, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = Attention(), MLP()
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = Norm(), Norm()

    def forward(self, x, past, allowed, positions):
        y, kept = self.self_attn(self.input_layernorm(x), past, allowed, positions)
        x = x + self.post_attention_layernorm(y)
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x))), kept


class Words(nn.Embedding):
    def forward(self, tokens):
        return super().forward(tokens) * WIDTH**0.5


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = Words(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()


class Gemma(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Trunk()
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)
        self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens, cache=None, use_cache=False, mask=None, positions=None):
        n, t = tokens.shape
        past = cache[0][0].shape[2] if cache is not None else 0
        if positions is None:
            positions = torch.arange(past, past + t, device=tokens.device).expand(n, t)
        causal = torch.ones(t, past + t, dtype=torch.bool, device=tokens.device).tril(past)
        near = causal.triu(past - WINDOW + 1)
        if mask is not None:
            causal, near = (each & mask.bool()[:, None, None] for each in (causal, near))
        x, kept = self.model.embed_tokens(tokens), []
        for index, layer in enumerate(self.model.layers):
            allowed = near if index % 2 == 0 else causal
            x, pair = layer(x, cache[index] if cache is not None else None, allowed, positions)
            kept.append(pair)
        logits = capped(self.lm_head(self.model.norm(x)), LOGIT_CAP)
        return (logits, tuple(kept)) if use_cache else logits


def build():
    return Gemma()
