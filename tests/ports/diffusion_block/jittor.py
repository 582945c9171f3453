import math

import jittor as jt
from jittor import nn


def timestep_embedding(t, dim, max_period=10000.0):
    half = dim // 2
    freqs = jt.exp(jt.arange(half).float32() * (-math.log(max_period) / half))
    args = t.float32().unsqueeze(1) * freqs.unsqueeze(0)
    return jt.concat([args.cos(), args.sin()], dim=1)


class ResBlock(nn.Module):
    def __init__(self, inputs, outputs, emb, groups):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.emb_proj = nn.Linear(emb, 2 * outputs)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def execute(self, x, emb):
        h = self.conv1(nn.silu(self.norm1(x)))
        emb = self.emb_proj(nn.silu(emb)).unsqueeze(2).unsqueeze(3)
        scale, shift = emb.chunk(2, dim=1)
        h = self.norm2(h) * (scale + 1) + shift
        h = self.conv2(nn.silu(h))
        if self.shortcut is not None:
            x = self.shortcut(x)
        return x + h


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

    def execute(self, x, t):
        emb = self.time_mlp(timestep_embedding(t, self.dim))
        x = self.conv_in(x)
        x = self.block1(x, emb)
        x = self.block2(x, emb)
        return self.conv_out(nn.silu(self.norm_out(x)))


def build(dim=32, width=20, groups=4):
    return Denoiser(dim, width, groups)
