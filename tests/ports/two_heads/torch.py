import torch
import torch.nn.functional as F
from torch import nn


class Head(nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, outputs, 1)

    def forward(self, x):
        return self.out(F.relu(self.conv(x)))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.down2 = nn.Conv2d(8, 14, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(14, 8, 4, stride=2, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.heat = Head(8, 4)
        self.size = Head(8, 2)

    def forward(self, image):
        fine = F.silu(self.down1(image))
        coarse = F.silu(self.down2(fine))
        x = F.relu(self.bn(self.up(coarse)) + fine)
        return {"heat": torch.sigmoid(self.heat(x)), "size": F.softplus(self.size(x))}


def build():
    return Detector()
