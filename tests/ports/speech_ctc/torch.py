import math

import torch
import torch.nn.functional as F
from torch import nn


class Subsampling(nn.Module):
    def __init__(self, mels, channels, dim):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, stride=2)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=2)
        self.out = nn.Linear(channels * (((mels - 1) // 2 - 1) // 2), dim)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x.unsqueeze(1)))))
        b, c, t, f = x.shape
        return self.out(x.transpose(1, 2).reshape(b, t, c * f))


def positions(length, dim):
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles)
    return table


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.down(F.silu(self.up(self.norm(x))))


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, mask):
        x = self.norm(x)
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(d // self.heads)
        scores = scores.masked_fill(~mask[:, None, None, :], -1e9)
        x = torch.matmul(scores.softmax(-1), v)
        return self.out(x.transpose(1, 2).reshape(b, t, d))


class ConvModule(nn.Module):
    def __init__(self, dim, kernel):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.pointwise1 = nn.Conv1d(dim, 2 * dim, 1)
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.batch_norm = nn.BatchNorm1d(dim)
        self.pointwise2 = nn.Conv1d(dim, dim, 1)

    def forward(self, x, mask):
        x = self.norm(x).transpose(1, 2)
        x = F.glu(self.pointwise1(x), dim=1)
        x = x.masked_fill(~mask[:, None, :], 0)
        x = F.silu(self.batch_norm(self.depthwise(x)))
        return self.pointwise2(x).transpose(1, 2)


class Conformer(nn.Module):
    def __init__(self, dim, heads, kernel):
        super().__init__()
        self.ff1 = FeedForward(dim)
        self.attention = Attention(dim, heads)
        self.conv = ConvModule(dim, kernel)
        self.ff2 = FeedForward(dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, mask):
        x = x + 0.5 * self.ff1(x)
        x = x + self.attention(x, mask)
        x = x + self.conv(x, mask)
        x = x + 0.5 * self.ff2(x)
        return self.norm(x)


class Encoder(nn.Module):
    def __init__(self, mels=20, channels=6, dim=16, heads=2, kernel=5, characters=15, depth=1):
        super().__init__()
        self.dim = dim
        self.subsampling = Subsampling(mels, channels, dim)
        self.blocks = nn.ModuleList(Conformer(dim, heads, kernel) for _ in range(depth))
        self.ctc = nn.Linear(dim, characters)

    def forward(self, mels, lengths):
        x = self.subsampling(mels)
        lengths = ((lengths - 1) // 2 - 1) // 2
        mask = torch.arange(x.shape[1]) < lengths[:, None]
        x = x * math.sqrt(self.dim) + positions(x.shape[1], self.dim)
        for block in self.blocks:
            x = block(x, mask)
        return F.log_softmax(self.ctc(x), dim=-1)


def build():
    return Encoder()
