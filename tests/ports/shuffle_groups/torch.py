import torch
import torch.nn.functional as F
from torch import nn


def channel_shuffle(x, groups):
    n, c, h, w = x.shape
    x = x.view(n, groups, c // groups, h, w)
    return x.transpose(1, 2).reshape(n, c, h, w)


class Unit(nn.Module):
    """A unit of stride 2 concatenates its branch with the averaged image, one of stride 1 adds them."""

    def __init__(self, inputs, outputs, groups, stride):
        super().__init__()
        self.groups, self.stride = groups, stride
        middle = outputs // 4
        branch = outputs - inputs if stride == 2 else outputs
        self.reduce = nn.Conv2d(inputs, middle, 1, groups=groups, bias=False)
        self.bn1 = nn.BatchNorm2d(middle)
        self.depthwise = nn.Conv2d(middle, middle, 3, stride, 1, groups=middle, bias=False)
        self.bn2 = nn.BatchNorm2d(middle)
        self.expand = nn.Conv2d(middle, branch, 1, groups=groups, bias=False)
        self.bn3 = nn.BatchNorm2d(branch)

    def forward(self, x):
        out = F.relu(self.bn1(self.reduce(x)))
        out = self.bn2(self.depthwise(channel_shuffle(out, self.groups)))
        out = self.bn3(self.expand(out))
        if self.stride == 2:
            return F.relu(torch.cat([F.avg_pool2d(x, 2), out], 1))
        return F.relu(x + out)


class Net(nn.Module):
    def __init__(self, groups, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 3, padding=1)
        self.unit1 = Unit(24, 48, groups, 2)
        self.unit2 = Unit(48, 48, groups, 1)
        self.fc = nn.Linear(48, classes)

    def forward(self, x):
        x = self.unit2(self.unit1(F.relu(self.stem(x))))
        return self.fc(x.mean((2, 3)))


def build(groups=3, classes=7):
    return Net(groups, classes)
