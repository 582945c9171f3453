import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv1 = weight_norm(nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation))
        self.conv2 = nn.utils.weight_norm(nn.Conv2d(width, width, 1))

    def forward(self, x):
        y = F.leaky_relu(self.conv1(F.leaky_relu(x, 0.1)), 0.1)
        return x + self.conv2(y)


class Decoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.pre = weight_norm(nn.Conv2d(6, 2 * width, 3, padding=1))
        self.up = weight_norm(nn.ConvTranspose2d(2 * width, width, 4, 2, padding=1))
        self.blocks = nn.ModuleList(Residual(width, dilation) for dilation in (1, 2))
        self.post = weight_norm(nn.Conv2d(width, 3, 3, padding=1, bias=False))

    def forward(self, code):
        x = self.up(F.leaky_relu(self.pre(code), 0.1))
        for block in self.blocks:
            x = block(x)
        return torch.tanh(self.post(F.leaky_relu(x, 0.01)))


def build(width=10):
    return Decoder(width)
