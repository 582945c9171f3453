import math

import torch
import torch.nn.functional as F
from torch import nn


class EqualLinear(nn.Module):
    def __init__(self, cin, cout, lr_mul=1.0, bias_init=0.0, activate=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin) / lr_mul)
        self.bias = nn.Parameter(torch.full((cout,), bias_init))
        self.scale, self.lr_mul, self.activate = lr_mul / math.sqrt(cin), lr_mul, activate

    def forward(self, x):
        x = F.linear(x, self.weight * self.scale, self.bias * self.lr_mul)
        return F.leaky_relu(x, 0.2) * math.sqrt(2) if self.activate else x


def fir(taps):
    taps = torch.tensor(taps)
    kernel = taps[:, None] * taps[None]
    return kernel / kernel.sum()


def upfirdn(x, kernel, pad):
    c = x.shape[1]
    x = F.pad(x, (pad[0], pad[1], pad[0], pad[1]))
    return F.conv2d(x, kernel.flip(0, 1)[None, None].expand(c, 1, -1, -1), groups=c)


class ModulatedConv(nn.Module):
    def __init__(self, cin, cout, kernel, style, demodulate=True, upsample=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, cout, cin, kernel, kernel))
        self.modulation = EqualLinear(style, cin, bias_init=1.0)
        self.scale = 1 / math.sqrt(cin * kernel**2)
        self.demodulate, self.upsample, self.pad = demodulate, upsample, kernel // 2
        if upsample:
            self.register_buffer("kernel", fir([1.0, 3.0, 3.0, 1.0]) * 4)

    def forward(self, x, style):
        n, cin, h, w = x.shape
        s = self.modulation(style).view(n, 1, cin, 1, 1)
        weight = self.scale * self.weight * s
        if self.demodulate:
            d = torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8)
            weight = weight * d.view(n, -1, 1, 1, 1)
        cout, k = weight.shape[1], weight.shape[-1]
        x = x.reshape(1, n * cin, h, w)
        if self.upsample:
            weight = weight.transpose(1, 2).reshape(n * cin, cout, k, k)
            x = F.conv_transpose2d(x, weight, stride=2, groups=n)
            x = x.view(n, cout, x.shape[-2], x.shape[-1])
            return upfirdn(x, self.kernel, (1, 1))
        x = F.conv2d(x, weight.view(n * cout, cin, k, k), padding=self.pad, groups=n)
        return x.view(n, cout, h, w)


class StyledConv(nn.Module):
    def __init__(self, cin, cout, style, upsample=False):
        super().__init__()
        self.conv = ModulatedConv(cin, cout, 3, style, upsample=upsample)
        self.noise_strength = nn.Parameter(torch.zeros(1))
        self.bias = nn.Parameter(torch.zeros(cout))

    def forward(self, x, style, noise):
        x = self.conv(x, style) + self.noise_strength * noise
        return F.leaky_relu(x + self.bias.view(1, -1, 1, 1), 0.2) * math.sqrt(2)


class ToRGB(nn.Module):
    def __init__(self, cin, style, upsample=False):
        super().__init__()
        self.conv = ModulatedConv(cin, 3, 1, style, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(1, 3, 1, 1))
        if upsample:
            self.register_buffer("kernel", fir([1.0, 3.0, 3.0, 1.0]) * 4)

    def forward(self, x, style, skip=None):
        y = self.conv(x, style) + self.bias
        if skip is not None:
            n, c, h, w = skip.shape
            wide = skip.new_zeros(n, c, h, 2, w, 2)
            wide[:, :, :, 0, :, 0] = skip
            y = y + upfirdn(wide.view(n, c, 2 * h, 2 * w), self.kernel, (2, 1))
        return y


class Generator(nn.Module):
    def __init__(self, style=10):
        super().__init__()
        self.style = nn.Sequential(
            EqualLinear(style, style, 0.01, activate=True), EqualLinear(style, style, 0.01, activate=True)
        )
        self.input = nn.Parameter(torch.randn(1, 8, 4, 4))
        self.conv1 = StyledConv(8, 8, style)
        self.to_rgb1 = ToRGB(8, style)
        self.conv2 = StyledConv(8, 6, style, upsample=True)
        self.to_rgb2 = ToRGB(6, style, upsample=True)

    def forward(self, z, noise0, noise1):
        w = self.style(z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8))
        x = self.conv1(self.input.repeat(len(z), 1, 1, 1), w, noise0)
        skip = self.to_rgb1(x, w)
        x = self.conv2(x, w, noise1)
        return self.to_rgb2(x, w, skip)


def build():
    return Generator()
