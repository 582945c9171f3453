import jittor as jt
from jittor import nn


def leaky(x):
    return nn.leaky_relu(x, 0.2) * 2**0.5


class StyledConv(nn.Module):
    def __init__(self, inputs, outputs, style):
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.style = nn.Linear(style, outputs)

    def execute(self, x, w):
        scale = self.style(w)
        return leaky(self.conv(x) * scale.reshape(scale.shape[0], -1, 1, 1))


class Generator(nn.Module):
    def __init__(self):
        self.map1 = nn.Linear(14, 20)
        self.map2 = nn.Linear(20, 20)
        self.const = jt.randn(12, 4, 3)
        self.block1 = StyledConv(12, 16, 20)
        self.block2 = StyledConv(16, 10, 20)
        self.block3 = StyledConv(10, 8, 20)
        self.to_rgb = nn.Conv2d(8, 3, 3)

    def execute(self, z):
        w = z / jt.sqrt((z * z).mean(1, keepdims=True) + 1e-8)
        w = leaky(self.map1(w))
        w = leaky(self.map2(w))
        x = self.const.unsqueeze(0).repeat(z.shape[0], 1, 1, 1)
        x = self.block1(x, w)
        for block in (self.block2, self.block3):
            x = nn.interpolate(x, scale_factor=2, mode="nearest")
            x = block(x, w)
        # Jittor's convolution has no other padding than zeros.
        x = nn.pad(x, [1, 1, 1, 1], mode="reflect")
        return self.to_rgb(x).tanh()


def build():
    return Generator()
