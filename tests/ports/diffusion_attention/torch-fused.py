import math

import torch
import torch.nn.functional as F
from torch import nn


def time_table(step, size):
    """Cosines and sines of the step, at falling frequencies."""
    half = size // 2
    frequencies = torch.exp(-math.log(10000) * torch.arange(half) / half)
    angles = step[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], -1)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, time, groups):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


def attend(q, k, v, heads):
    """Attention of several heads. All have the axes batch, position, value."""
    q, k, v = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in (q, k, v))
    weights = (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


class Transformer(nn.Module):
    """Attention among the pixels and to the text, with a gated layer behind it."""

    def __init__(self, width, heads, text, groups, hidden):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(groups, width, eps=1e-6)
        self.conv_in = nn.Conv2d(width, width, 1)
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out1 = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(text, 2 * width, bias=False)
        self.out2 = nn.Linear(width, width)
        self.norm3 = nn.LayerNorm(width)
        self.value = nn.Linear(width, hidden)
        self.gate = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.conv_out = nn.Conv2d(width, width, 1)

    def forward(self, x, text):
        y = self.conv_in(self.norm(x)).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(self.norm1(y)).chunk(3, -1)
        y = y + self.out1(attend(q, k, v, self.heads))
        k, v = self.kv(text).chunk(2, -1)
        y = y + self.out2(attend(self.q(self.norm2(y)), k, v, self.heads))
        z = self.norm3(y)
        y = y + self.down(self.value(z) * F.gelu(self.gate(z)))
        return x + self.conv_out(y.transpose(1, 2).unflatten(2, x.shape[2:]))


class Block(nn.Module):
    def __init__(self, inputs, width, heads, text, groups):
        super().__init__()
        self.inputs = inputs
        self.time = nn.Sequential(nn.Linear(inputs, 4 * inputs), nn.SiLU(), nn.Linear(4 * inputs, 4 * inputs))
        self.residual = Residual(inputs, width, 4 * inputs, groups)
        self.transformer = Transformer(width, heads, text, groups, 4 * width)

    def forward(self, sample, timestep, text):
        time = self.time(time_table(timestep, self.inputs))
        return self.transformer(self.residual(sample, time), text)


def build(inputs=8, width=12, heads=2, text=10, groups=4):
    return Block(inputs, width, heads, text, groups)
