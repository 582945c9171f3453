import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    """An image becomes a vector of length one."""

    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, 3, padding=1)
        self.norm = nn.GroupNorm(4, 8)
        self.conv2 = nn.Conv2d(8, 12, 3, padding=1)
        self.fc = nn.Linear(12, width)

    def forward(self, x):
        x = F.leaky_relu(self.norm(self.conv1(x)), 0.2)
        x = F.relu(self.conv2(F.avg_pool2d(x, 2)))
        return F.normalize(self.fc(x.mean((2, 3))), dim=1)


class Towers(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encoder = Encoder(width)
        self.hidden = nn.Linear(2 * width, 9)
        self.out = nn.Linear(9, 3)

    def forward(self, left, right):
        a, b = self.encoder(left), self.encoder(right)
        x = torch.cat([(a - b).abs(), a * b], 1)
        return self.out(torch.tanh(self.hidden(x)))


def build(width=10):
    return Towers(width)
