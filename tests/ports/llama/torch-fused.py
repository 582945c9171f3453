import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rotary_table(length, size, base=10000.0):
    """Cosines and sines of the angles of every position. Returns two arrays: position, pair of values."""
    frequencies = base ** (-torch.arange(0, size, 2).float() / size)
    angles = torch.outer(torch.arange(length).float(), frequencies)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Rotate neighbouring values as pairs. x: batch, head, position, value."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        y = self.qkv(x).view(batch, length, -1, self.size).transpose(1, 2)
        q, k, v = y.split([self.heads, self.kv_heads, self.kv_heads], 1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        groups = self.heads // self.kv_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = q @ k.transpose(2, 3) * self.size**-0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.norm1 = RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads)
        self.norm2 = RMSNorm(width)
        self.mlp = MLP(width, hidden)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, words, width, depth, heads, kv_heads, hidden):
        super().__init__()
        self.size = width // heads
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads, hidden) for _ in range(depth))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        cos, sin = rotary_table(ids.shape[1], self.size)
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def build(words=53, width=24, depth=2, heads=6, kv_heads=2, hidden=40):
    return Llama(words, width, depth, heads, kv_heads, hidden)
