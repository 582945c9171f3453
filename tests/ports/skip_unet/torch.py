import torch
import torch.nn.functional as F
from torch import nn


class Down(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.act = nn.LeakyReLU(0.2)

    def forward(self, x):
        return self.act(self.norm(self.conv(x)))


class Up(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x, skip):
        x = F.relu(self.norm(self.conv(x)))
        return torch.cat([x, skip], 1)


class Generator(nn.Module):
    def __init__(self, widths, outputs):
        super().__init__()
        a, b, c = widths
        self.down1 = Down(3, a)
        self.down2 = Down(a, b)
        self.down3 = Down(b, c)
        self.up2 = Up(c, b)
        self.up1 = Up(2 * b, a)
        self.last = nn.ConvTranspose2d(2 * a, outputs, 3, 2, 1, output_padding=1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(first)
        x = self.up2(self.down3(second), second)
        x = self.up1(x, first)
        return torch.tanh(self.last(x))


def build(widths=(10, 18, 26), outputs=2):
    return Generator(widths, outputs)
