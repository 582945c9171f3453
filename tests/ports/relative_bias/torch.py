import math

import torch
import torch.nn.functional as F
from torch import nn


def buckets(length, count, farthest):
    """The range in which the distance from each query to each key lies; later keys have ranges of their own."""
    place = torch.arange(length)
    distance = place[None, :] - place[:, None]
    half, near = count // 2, count // 4
    size = distance.abs()
    far = near + (size.clamp(min=1) / near).log() / math.log(farthest / near) * (half - near)
    return (distance > 0) * half + torch.where(size < near, size, far.long().clamp(max=half - 1))


class Attention(nn.Module):
    def __init__(self, dim, heads, length, count, temperature):
        super().__init__()
        self.heads, self.temperature = heads, temperature
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)
        self.bias = nn.Embedding(count, heads)
        self.register_buffer("buckets", buckets(length, count, 12), persistent=False)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(2, 3) + self.bias(self.buckets).permute(2, 0, 1)
        y = F.softmax(scores / self.temperature, -1) @ v
        return self.o(y.transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    def __init__(self, dim, heads, length, count, temperature):
        super().__init__()
        self.norm1 = nn.RMSNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads, length, count, temperature)
        self.norm2 = nn.RMSNorm(dim, eps=1e-6)
        self.wi = nn.Linear(dim, 30, bias=False)
        self.wo = nn.Linear(30, dim, bias=False)
        self.head = nn.Linear(dim, 4)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        x = x + self.wo(F.relu(self.wi(self.norm2(x))))
        return self.head(x)


def build(dim=18, heads=3, length=10, count=8, temperature=2.5):
    return Encoder(dim, heads, length, count, temperature)
