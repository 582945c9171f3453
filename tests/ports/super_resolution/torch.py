import torch.nn.functional as F
from torch import nn


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=2, dilation=2)
        self.act = nn.PReLU(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + 0.2 * self.conv2(self.act(self.conv1(x)))


class SuperResolution(nn.Module):
    def __init__(self, scale, width, blocks):
        super().__init__()
        self.scale = scale
        self.head = nn.Conv2d(3, width, 5, padding=2, padding_mode="reflect")
        self.body = nn.Sequential(*(ResidualBlock(width) for _ in range(blocks)))
        self.tail = nn.Conv2d(width, 3 * scale**2, 3, padding=1)

    def forward(self, x):
        y = self.tail(self.body(self.head(x)))
        skip = F.interpolate(x, scale_factor=self.scale, mode="bilinear", align_corners=False)
        return F.pixel_shuffle(y, self.scale) + skip


def build(scale=3, width=14, blocks=2):
    return SuperResolution(scale, width, blocks)
