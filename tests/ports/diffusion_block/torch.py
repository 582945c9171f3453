import math

import torch
import torch.nn.functional as F
from torch import nn


def timestep_embedding(t, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, device=t.device) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, inputs, outputs, emb, groups):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.emb_proj = nn.Linear(emb, 2 * outputs)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.emb_proj(F.silu(emb))[:, :, None, None].chunk(2, dim=1)
        h = self.norm2(h) * (1 + scale) + shift
        return self.shortcut(x) + self.conv2(F.silu(h))


class Denoiser(nn.Module):
    def __init__(self, dim, width, groups):
        super().__init__()
        self.dim = dim
        self.time_mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, 2 * dim))
        self.conv_in = nn.Conv2d(3, 12, 3, padding=1)
        self.block1 = ResBlock(12, width, 2 * dim, groups)
        self.block2 = ResBlock(width, width, 2 * dim, groups)
        self.norm_out = nn.GroupNorm(groups, width)
        self.conv_out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        emb = self.time_mlp(timestep_embedding(t, self.dim))
        x = self.block1(self.conv_in(x), emb)
        x = self.block2(x, emb)
        return self.conv_out(F.silu(self.norm_out(x)))


def build(dim=32, width=20, groups=4):
    return Denoiser(dim, width, groups)
