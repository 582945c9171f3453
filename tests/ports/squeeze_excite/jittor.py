from jittor import nn


def hard_sigmoid(x):
    return nn.relu6(x + 3.0) / 6.0


def hard_swish(x):
    return x * hard_sigmoid(x)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.reduce = nn.Linear(channels, reduced)
        self.expand = nn.Linear(reduced, channels)

    def execute(self, x):
        n, c, h, w = x.shape
        s = x.reshape(n, c, h * w).mean(2)
        s = nn.relu(self.reduce(s))
        s = hard_sigmoid(self.expand(s))
        return x * s.reshape(n, c, 1, 1)


class Bottleneck(nn.Module):
    def __init__(self, inputs, middle, outputs, kernel, stride):
        super().__init__()
        self.conv1 = nn.Conv(inputs, middle, 1, bias=False)
        self.bn1 = nn.BatchNorm(middle, eps=1e-3)
        padding = (kernel - 1) // 2
        self.conv2 = nn.Conv(middle, middle, kernel, stride, padding, groups=middle, bias=False)
        self.bn2 = nn.BatchNorm(middle, eps=1e-3)
        self.se = SqueezeExcite(middle, middle // 4)
        self.conv3 = nn.Conv(middle, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm(outputs, eps=1e-3)
        self.residual = stride == 1 and inputs == outputs

    def execute(self, x):
        y = hard_swish(self.bn1(self.conv1(x)))
        y = hard_swish(self.bn2(self.conv2(y)))
        y = self.se(y)
        y = self.bn3(self.conv3(y))
        if self.residual:
            y = y + x
        return y


class Net(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Conv(3, width, 3, 2, 1)
        self.block1 = Bottleneck(width, 3 * width, width, 3, 1)
        self.block2 = Bottleneck(width, 4 * width, width + 8, 5, 2)
        self.fc = nn.Linear(width + 8, classes)

    def execute(self, x):
        x = hard_swish(self.stem(x))
        x = self.block1(x)
        x = self.block2(x)
        return self.fc(x.mean((2, 3)))


def build(width=12, classes=6):
    return Net(width, classes)
