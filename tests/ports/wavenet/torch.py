import math

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, residual, gate, skip, cond, kernel, dilation):
        super().__init__()
        self.left = (kernel - 1) * dilation
        self.conv = nn.Conv1d(residual, gate, kernel, dilation=dilation)
        self.cond = nn.Conv1d(cond, gate, 1, bias=False)
        self.out = nn.Conv1d(gate // 2, residual, 1)
        self.skip = nn.Conv1d(gate // 2, skip, 1)

    def forward(self, x, c):
        h = self.conv(F.pad(x, (self.left, 0))) + self.cond(c)
        a, b = h.chunk(2, dim=1)
        h = torch.tanh(a) * torch.sigmoid(b)
        return (x + self.out(h)) * math.sqrt(0.5), self.skip(h)


class WaveNet(nn.Module):
    def __init__(self, classes=32, residual=10, gate=12, skip=14, cond=5, kernel=2, dilations=(1, 2, 4), hop=4):
        super().__init__()
        self.hop = hop
        self.embed = nn.Embedding(classes, residual)
        self.blocks = nn.ModuleList(Residual(residual, gate, skip, cond, kernel, d) for d in dilations)
        self.post1 = nn.Conv1d(skip, skip, 1)
        self.post2 = nn.Conv1d(skip, classes, 1)

    def forward(self, samples, frames):
        # The sample at each time is predicted from the ones before it.
        samples = F.pad(samples[:, :-1], (1, 0), value=16)
        x = self.embed(samples).transpose(1, 2)
        c = frames.repeat_interleave(self.hop, dim=-1)
        skips = 0
        for block in self.blocks:
            x, skip = block(x, c)
            skips = skips + skip
        x = F.relu(skips * math.sqrt(1 / len(self.blocks)))
        return self.post2(F.relu(self.post1(x)))


def build():
    return WaveNet()
