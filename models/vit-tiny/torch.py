import torch
from torch import nn


class Token(nn.Module):
    """Puts a learned token before the others."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(1, dim))

    def forward(self, x):
        return torch.cat([self.weight.expand(x.shape[0], 1, -1), x], 1)


class Position(nn.Module):
    """Adds a learned vector to every position."""

    def __init__(self, length, dim):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(length, dim))

    def forward(self, x):
        return x + self.weight


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.softmax = nn.Softmax(-1)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        n, length, dim = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(2, 3) / (dim // self.heads) ** 0.5
        x = self.softmax(scores) @ v
        return self.proj(x.transpose(1, 2).reshape(n, length, dim))

    def split(self, x):
        n, length, dim = x.shape
        return x.reshape(n, length, self.heads, dim // self.heads).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.ln2 = nn.LayerNorm(dim, eps=1e-6)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.gelu(self.fc1(self.ln2(x))))


class ViT(nn.Module):
    def __init__(self, image, patch, dim, depth, heads, classes):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, patch, patch)
        self.cls = Token(dim)
        self.pos = Position((image // patch) ** 2 + 1, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.ln = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = self.pos(self.cls(x))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)[:, 0])


def build(image=64, patch=8, dim=192, depth=6, heads=3, classes=10):
    return ViT(image, patch, dim, depth, heads, classes)
