import torch
import torch.nn.functional as F
from torch import nn


def partition(x, size):
    n, h, w, c = x.shape
    x = x.view(n, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, c)


def reverse(windows, size, h, w):
    x = windows.view(-1, h // size, w // size, size, size, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, h, w, windows.shape[-1])


def shift_mask(h, w, size, shift):
    """Separates regions that only the roll made neighbours: (windows, positions, positions)."""
    region = torch.zeros(1, h, w, 1)
    parts = (slice(0, -size), slice(-size, -shift), slice(-shift, None))
    for i, rows in enumerate(parts):
        for j, columns in enumerate(parts):
            region[:, rows, columns] = 3 * i + j
    region = partition(region, size).squeeze(-1)
    return (region[:, None] != region[:, :, None]) * -100.0


class WindowAttention(nn.Module):
    def __init__(self, dim, heads, positions):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.bias = nn.Parameter(0.02 * torch.randn(heads, positions, positions))
        self.softmax = nn.Softmax(dim=-1)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        b, length, c = x.shape
        q, k, v = self.qkv(x).reshape(b, length, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * self.scale) @ k.transpose(-2, -1) + self.bias
        if mask is not None:
            scores = scores.view(-1, len(mask), *scores.shape[1:]) + mask[None, :, None]
            scores = scores.flatten(0, 1)
        x = self.softmax(scores) @ v
        return self.proj(x.transpose(1, 2).reshape(b, length, c))


class Block(nn.Module):
    def __init__(self, dim, heads, size, shift, h, w):
        super().__init__()
        self.size, self.shift = size, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, heads, size * size)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)
        self.register_buffer("mask", shift_mask(h, w, size, shift) if shift else None, persistent=False)

    def forward(self, x):
        _, h, w, _ = x.shape
        out = torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2))
        out = self.attn(partition(out, self.size), self.mask)
        out = torch.roll(reverse(out, self.size, h, w), (self.shift, self.shift), (1, 2))
        x = x + out
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class WindowTransformer(nn.Module):
    def __init__(self, dim, heads, size, h, w, classes):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 2, 2)
        self.blocks = nn.Sequential(*(Block(dim, heads, size, shift, h, w) for shift in (0, size // 2)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.blocks(self.patch(x).permute(0, 2, 3, 1))
        return self.head(self.norm(x).mean((1, 2)))


def build(dim=30, heads=3, size=4, h=8, w=12, classes=5):
    return WindowTransformer(dim, heads, size, h, w, classes)
