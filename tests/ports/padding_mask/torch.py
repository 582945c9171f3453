import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask):
        n, length, dim = x.shape
        q, k, v = self.qkv(x).reshape(n, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        scores = (q * self.size**-0.5) @ k.transpose(-2, -1)
        scores = scores.masked_fill(mask[:, None, None, :] == 0, float("-inf"))
        y = scores.softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(n, length, dim))


class Encoder(nn.Module):
    def __init__(self, dim, heads, classes):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x, mask):
        x = x + self.attn(self.norm1(x), mask)
        x = x + self.fc2(F.relu(self.fc1(self.norm2(x))))
        kept = mask.unsqueeze(-1).to(x.dtype)
        pooled = (x * kept).sum(1) / kept.sum(1)
        return self.head(pooled), x


def build(dim=24, heads=3, classes=5):
    return Encoder(dim, heads, classes)
