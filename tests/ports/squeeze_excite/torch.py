import torch.nn.functional as F
from torch import nn


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.reduce = nn.Linear(channels, reduced)
        self.expand = nn.Linear(reduced, channels)

    def forward(self, x):
        s = x.mean((2, 3))
        s = F.hardsigmoid(self.expand(F.relu(self.reduce(s))))
        return x * s[:, :, None, None]


class Bottleneck(nn.Module):
    def __init__(self, inputs, middle, outputs, kernel, stride):
        super().__init__()
        self.residual = stride == 1 and inputs == outputs
        self.conv1 = nn.Conv2d(inputs, middle, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(middle, eps=1e-3)
        self.conv2 = nn.Conv2d(middle, middle, kernel, stride, kernel // 2, groups=middle, bias=False)
        self.bn2 = nn.BatchNorm2d(middle, eps=1e-3)
        self.se = SqueezeExcite(middle, middle // 4)
        self.conv3 = nn.Conv2d(middle, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x):
        out = F.hardswish(self.bn1(self.conv1(x)))
        out = self.se(F.hardswish(self.bn2(self.conv2(out))))
        out = self.bn3(self.conv3(out))
        return x + out if self.residual else out


class Net(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.block1 = Bottleneck(width, 3 * width, width, 3, 1)
        self.block2 = Bottleneck(width, 4 * width, width + 8, 5, 2)
        self.fc = nn.Linear(width + 8, classes)

    def forward(self, x):
        x = F.hardswish(self.stem(x))
        x = self.block2(self.block1(x))
        return self.fc(x.mean((2, 3)))


def build(width=12, classes=6):
    return Net(width, classes)
