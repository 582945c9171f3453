import math

import torch
import torch.nn.functional as F
from torch import nn


def buckets(length, count=32, farthest=128):
    """The bucket of each distance: half of them for later keys, and behind the near ones, as wide as the distance is large."""
    place = torch.arange(length)
    distance = place[None, :] - place[:, None]
    half, near = count // 2, count // 4
    far = near + (half - near) * torch.log(distance.abs().float() / near) / math.log(farthest / near)
    size = torch.where(distance.abs() < near, distance.abs(), far.long().clamp(max=half - 1))
    return (distance > 0) * half + size


class Block(nn.Module):
    def __init__(self, width, heads, size, hidden):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.RMSNorm(width, eps=1e-6)
        self.q, self.k, self.v = (nn.Linear(width, heads * size, bias=False) for _ in range(3))
        self.o = nn.Linear(heads * size, width, bias=False)
        self.norm2 = nn.RMSNorm(width, eps=1e-6)
        self.wi, self.wo = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x, bias):
        y = self.norm1(x)
        q, k, v = (layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.wo(F.relu(self.wi(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(self, words, width, depth, heads, size, hidden):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.bias = nn.Embedding(32, heads)
        self.blocks = nn.ModuleList(Block(width, heads, size, hidden) for _ in range(depth))
        self.norm = nn.RMSNorm(width, eps=1e-6)

    def forward(self, ids):
        bias = self.bias(buckets(ids.shape[1])).permute(2, 0, 1)[None]
        x = self.words(ids)
        for block in self.blocks:
            x = block(x, bias)
        return self.norm(x)


def build():
    return Encoder(53, 24, 2, 3, 8, 40)
