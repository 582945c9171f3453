import jittor as jt
from jittor import nn


class NormedConv(nn.Module):
    """A convolution with the norm and the direction of its kernel as parameters."""

    def __init__(self, inputs, outputs, kernel, padding=0, dilation=1, bias=True):
        super().__init__()
        self.padding, self.dilation = padding, dilation
        self.direction = jt.randn(outputs, inputs, kernel, kernel)
        self.norm = jt.ones((outputs, 1, 1, 1))
        self.bias = jt.zeros(outputs) if bias else None

    def execute(self, x):
        length = (self.direction * self.direction).sum(dims=(1, 2, 3), keepdims=True).sqrt()
        kernel = self.direction * (self.norm / length)
        return nn.conv2d(x, kernel, self.bias, 1, self.padding, self.dilation)


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv1 = NormedConv(width, width, 3, dilation, dilation)
        self.conv2 = NormedConv(width, width, 1)

    def execute(self, x):
        y = nn.leaky_relu(self.conv1(nn.leaky_relu(x, 0.1)), 0.1)
        return x + self.conv2(y)


class Decoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.pre = NormedConv(6, 2 * width, 3, 1)
        self.up = nn.ConvTranspose(2 * width, width, 4, 2, 1)
        self.blocks = nn.ModuleList([Residual(width, dilation) for dilation in (1, 2)])
        self.post = nn.Conv(width, 3, 3, padding=1, bias=False)

    def execute(self, code):
        x = self.up(nn.leaky_relu(self.pre(code), 0.1))
        for block in self.blocks:
            x = block(x)
        return jt.tanh(self.post(nn.leaky_relu(x, 0.01)))


def build(width=10):
    return Decoder(width)
