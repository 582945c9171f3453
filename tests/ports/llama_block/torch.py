import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate_half(x):
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


class Attention(nn.Module):
    def __init__(self, dim, heads, shared, length, base=10000.0):
        super().__init__()
        self.size, self.groups = dim // heads, heads // shared
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, shared * self.size, bias=False)
        self.v_proj = nn.Linear(dim, shared * self.size, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)
        frequencies = base ** (-torch.arange(0, self.size, 2) / self.size)
        angles = torch.outer(torch.arange(length), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x):
        n, length, dim = x.shape
        q, k, v = (p(x).view(n, length, -1, self.size).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (each * self.cos + rotate_half(each) * self.sin for each in (q, k))
        k, v = k.repeat_interleave(self.groups, 1), v.repeat_interleave(self.groups, 1)
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(2, 3) / self.size**0.5).masked_fill(later, float("-inf"))
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, length, dim))


class Llama(nn.Module):
    def __init__(self, words, dim, heads, shared, length):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.norm1 = RMSNorm(dim)
        self.attn = Attention(dim, heads, shared, length)
        self.norm2 = RMSNorm(dim)
        self.gate = nn.Linear(dim, 40, bias=False)
        self.up = nn.Linear(dim, 40, bias=False)
        self.down = nn.Linear(40, dim, bias=False)
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, words, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.attn(self.norm1(x))
        y = self.norm2(x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(self.norm(x))


def build(words=50, dim=32, heads=4, shared=2, length=9):
    return Llama(words, dim, heads, shared, length)
