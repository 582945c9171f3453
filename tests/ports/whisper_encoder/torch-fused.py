import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Attention of every position to every other one. Keys have no bias, so that they are projected by themselves."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qv = nn.Linear(width, 2 * width)
        self.k = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        def in_heads(y):
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        q, v = self.qv(x).chunk(2, -1)
        q, k, v = in_heads(q), in_heads(self.k(x)), in_heads(v)
        weights = (q * q.shape[-1] ** -0.5 @ k.transpose(2, 3)).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A block of the encoder, which normalises before attention and before the two layers."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class AudioEncoder(nn.Module):
    def __init__(self, bands, positions, width, depth, heads, hidden):
        super().__init__()
        self.conv1 = nn.Conv1d(bands, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.zeros(positions, width), requires_grad=False)
        self.blocks = nn.Sequential(*(Block(width, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        x = F.gelu(self.conv1(x))
        x = F.gelu(self.conv2(x)).transpose(1, 2)
        return self.norm(self.blocks(x + self.positions))


def build(bands=10, positions=13, width=24, depth=2, heads=3, hidden=40):
    return AudioEncoder(bands, positions, width, depth, heads, hidden)
