import torch
import torch.nn.functional as F
from torch import nn


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of an image N,C,H,W."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, dim, layer_scale):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(layer_scale * torch.ones(dim))

    def forward(self, x):
        shortcut = x
        x = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        x = self.gamma * self.pwconv2(F.gelu(self.pwconv1(x)))
        return shortcut + x.permute(0, 3, 1, 2)


class ConvNet(nn.Module):
    def __init__(self, dim, depth, classes, layer_scale):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 2, 2)
        self.stem_norm = LayerNorm2d(dim, eps=1e-6)
        self.blocks = nn.Sequential(*(Block(dim, layer_scale) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.blocks(self.stem_norm(self.stem(x)))
        return self.head(self.norm(x.mean((-2, -1))))


def build(dim=22, depth=2, classes=9, layer_scale=0.1):
    return ConvNet(dim, depth, classes, layer_scale)
