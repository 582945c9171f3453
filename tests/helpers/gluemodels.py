"""Models of other people's designs, as a port may have them: routed experts, grids of images, decoders, transducers, fields."""

import torch

from helpers.replayedports import random

HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import nn

"""

MOE = """
class Net(nn.Module):
    def __init__(self, dim=12, experts=6, k=2):
        super().__init__()
        self.k, self.count = k, experts
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, experts, bias=False)
        self.up = nn.Linear(dim, experts * 10)
        self.down = nn.Parameter(torch.randn(experts, 10, dim) / 3)
        self.out = nn.Linear(dim, 8)

    def forward(self, x):
        h = self.norm(x)
        p = self.gate(h).softmax(-1)
        w, chosen = p.topk(self.k, dim=-1)
        w = w / w.sum(-1, keepdim=True)
        up = F.gelu(self.up(h)).unflatten(-1, (self.count, 10))
        each = torch.einsum("nteh,ehd->nted", up, self.down)
        index = chosen[..., None].expand(-1, -1, -1, each.shape[-1])
        taken = each.gather(2, index)
        y = (w[..., None] * taken).sum(2)
        return self.out(x + y)

def build():
    return Net()
"""

STN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.fc = nn.Linear(4, 6)
        self.head = nn.Conv2d(5, 6, 3, padding=1)

    def forward(self, x):
        n, _, h, w = x.shape
        f = F.relu(self.conv(x)).mean((2, 3))
        theta = 0.5 * torch.tanh(self.fc(f)).view(-1, 2, 3) + torch.tensor([[1.0, 0.0, 0.2], [0.0, 1.0, -0.1]])
        ys = torch.linspace(-1, 1, h)
        xs = torch.linspace(-1, 1, w)
        gy, gx = torch.meshgrid(ys, xs, indexing="ij")
        points = torch.stack([gx, gy, torch.ones_like(gx)], -1)
        grid = points.view(1, h * w, 3) @ theta.transpose(1, 2)
        grid = grid.view(n, h, w, 2)
        y = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=True)
        radius = (grid ** 2).sum(-1).clamp(0.0, 1.5)
        return self.head(torch.cat([y, radius[:, None], gy.expand(n, 1, h, w)], 1))

def build():
    return Net()
"""

AUDIO = """
class Net(nn.Module):
    def __init__(self, bins=9, mels=6):
        super().__init__()
        self.mel = nn.Linear(bins, mels, bias=False)
        self.lstm = nn.LSTM(mels, 7, batch_first=True)
        self.score, self.out = nn.Linear(7, 1), nn.Linear(14, 5)

    def forward(self, x, lengths):
        power = x ** 2
        mask = torch.arange(x.shape[1])[None, :] < lengths[:, None]
        m = mask[..., None].float()
        mel = torch.log(torch.clamp(self.mel(power).abs(), min=1e-2))
        count = m.sum(1, keepdim=True)
        mean = (mel * m).sum(1, keepdim=True) / count
        var = ((mel - mean) ** 2 * m).sum(1, keepdim=True) / count
        z = (mel - mean) / torch.sqrt(var + 1e-3) * m
        h, _ = self.lstm(z)
        s = self.score(torch.tanh(h)).squeeze(-1).masked_fill(~mask, -1e9)
        a = s.softmax(1)[..., None]
        mu = (a * h).sum(1)
        sd = ((a * h ** 2).sum(1) - mu ** 2).clamp(min=1e-3).sqrt()
        return self.out(torch.cat([mu, sd], -1))

def build():
    return Net()
"""

DECODER = """
def turn(x, positions, base, scale):
    half = x.shape[-1] // 2
    angle = (positions / scale)[:, None] * base ** (-torch.arange(half) / half)
    c, s = angle.cos(), angle.sin()
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack([x1 * c - x2 * s, x1 * s + x2 * c], -1).flatten(-2)


class Net(nn.Module):
    def __init__(self, dim=16, heads=4, experts=4):
        super().__init__()
        self.heads, self.window = heads, 3
        self.norm = nn.Parameter(torch.randn(dim) / 4)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.qn, self.kn = nn.Parameter(1 + torch.randn(4) / 4), nn.Parameter(1 + torch.randn(4) / 4)
        self.o = nn.Linear(dim, dim, bias=False)
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList([nn.Linear(dim, dim) for _ in range(experts)])
        self.head = nn.Linear(dim, 12, bias=False)

    def rms(self, x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * (1 + weight)

    def forward(self, x):
        n, length, dim = x.shape
        q, k, v = self.qkv(self.rms(x, self.norm)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = self.rms(q, self.qn), self.rms(k, self.kn)
        i = torch.arange(length)
        q, k = turn(q, i.float(), 10000.0, 2.0), turn(k, i.float(), 10000.0, 2.0)
        s = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        seen = (i[None, :] <= i[:, None]) & (i[:, None] - i[None, :] < self.window)
        y = s.masked_fill(~seen, -1e9).softmax(-1) @ v
        x = x + self.o(y.transpose(1, 2).reshape(n, length, dim))
        p = self.router(x).sigmoid()
        w, chosen = p.topk(2, -1)
        w = w / (w.sum(-1, keepdim=True) + 1e-6) * 1.5
        each = torch.stack([F.gelu(expert(x)) for expert in self.experts], 2)
        mixed = (each.gather(2, chosen[..., None].expand(-1, -1, -1, dim)) * w[..., None]).sum(2)
        logits = self.head(x + mixed)
        return 3.0 * torch.tanh(logits / 3.0)

def build():
    return Net()
"""

# name -> the text of the model, and its inputs
MODELS = {
    "moe": (HEAD + MOE, [random(2, 5, 12)]),
    "stn": (HEAD + STN, [random(2, 3, 8, 10)]),
    "audio": (HEAD + AUDIO, [random(3, 7, 9), torch.tensor([7, 4, 5])]),
    "decoder": (HEAD + DECODER, [random(2, 6, 16)]),
}
