import jittor as jt
from jittor import nn


def shuffle(x, groups):
    n, c, h, w = x.shape
    x = x.reshape(n, groups, c // groups, h, w)
    x = x.permute(0, 2, 1, 3, 4)
    return x.reshape(n, c, h, w)


class Unit(nn.Module):
    def __init__(self, inputs, outputs, groups, stride):
        super().__init__()
        self.groups = groups
        self.stride = stride
        middle = outputs // 4
        if stride == 2:
            outputs -= inputs
        self.reduce = nn.Conv(inputs, middle, 1, groups=groups, bias=False)
        self.bn1 = nn.BatchNorm(middle)
        self.depthwise = nn.Conv(middle, middle, 3, stride=stride, padding=1, groups=middle, bias=False)
        self.bn2 = nn.BatchNorm(middle)
        self.expand = nn.Conv(middle, outputs, 1, groups=groups, bias=False)
        self.bn3 = nn.BatchNorm(outputs)
        self.pool = nn.Pool(2, stride=2, op="mean")

    def execute(self, x):
        out = nn.relu(self.bn1(self.reduce(x)))
        out = shuffle(out, self.groups)
        out = self.bn2(self.depthwise(out))
        out = self.bn3(self.expand(out))
        if self.stride == 1:
            return nn.relu(x + out)
        return nn.relu(jt.concat([self.pool(x), out], dim=1))


class Net(nn.Module):
    def __init__(self, groups, classes):
        super().__init__()
        self.stem = nn.Conv(3, 24, 3, padding=1)
        self.unit1 = Unit(24, 48, groups, 2)
        self.unit2 = Unit(48, 48, groups, 1)
        self.fc = nn.Linear(48, classes)

    def execute(self, x):
        x = nn.relu(self.stem(x))
        x = self.unit2(self.unit1(x))
        return self.fc(x.mean(dims=[2, 3]))


def build(groups=3, classes=7):
    return Net(groups, classes)
