import math

import torch
import torch.nn.functional as F
from torch import nn


def leaky(x):
    return F.leaky_relu(x, 0.2) * math.sqrt(2)


class StyledConv(nn.Module):
    def __init__(self, inputs, outputs, style):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.style = nn.Linear(style, outputs)

    def forward(self, x, w):
        return leaky(self.conv(x) * self.style(w)[:, :, None, None])


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.map1 = nn.Linear(14, 20)
        self.map2 = nn.Linear(20, 20)
        self.const = nn.Parameter(torch.randn(12, 4, 3))
        self.block1 = StyledConv(12, 16, 20)
        self.block2 = StyledConv(16, 10, 20)
        self.block3 = StyledConv(10, 8, 20)
        self.to_rgb = nn.Conv2d(8, 3, 3, padding=1, padding_mode="reflect")

    def forward(self, z):
        w = z * (z.square().mean(1, keepdim=True) + 1e-8).rsqrt()
        w = leaky(self.map2(leaky(self.map1(w))))
        x = self.const.expand(len(z), -1, -1, -1)
        x = self.block1(x, w)
        x = self.block2(F.interpolate(x, scale_factor=2), w)
        x = self.block3(F.interpolate(x, scale_factor=2), w)
        return torch.tanh(self.to_rgb(x))


def build():
    return Generator()
