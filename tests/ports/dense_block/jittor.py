import jittor as jt
from jittor import nn


class DenseLayer(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.norm1 = nn.BatchNorm(inputs)
        self.conv1 = nn.Conv(inputs, 2 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm(2 * growth)
        self.conv2 = nn.Conv(2 * growth, growth, 3, padding=1, bias=False)

    def execute(self, x):
        new_features = self.conv1(nn.relu(self.norm1(x)))
        new_features = self.conv2(nn.relu(self.norm2(new_features)))
        return jt.concat([x, new_features], dim=1)


class Transition(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm = nn.BatchNorm(inputs)
        self.conv = nn.Conv(inputs, outputs, 1, bias=False)
        self.pool = nn.Pool(3, stride=2, padding=1, op="mean")

    def execute(self, x):
        x = nn.relu(self.norm(x))
        return self.pool(self.conv(x))


def dense_block(inputs, growth, number):
    return nn.Sequential(*[DenseLayer(inputs + i * growth, growth) for i in range(number)])


class DenseNet(nn.Module):
    def __init__(self, width, growth, classes):
        super().__init__()
        self.stem = nn.Conv(3, width, 3, padding=1)
        self.block1 = dense_block(width, growth, 3)
        width = width + 3 * growth
        self.transition = Transition(width, width // 2)
        width = width // 2
        self.block2 = dense_block(width, growth, 2)
        width = width + 2 * growth
        self.norm = nn.BatchNorm(width)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(width, classes)

    def execute(self, x):
        x = self.stem(x)
        x = self.transition(self.block1(x))
        x = nn.relu(self.norm(self.block2(x)))
        x = self.avgpool(x)
        return self.classifier(x.reshape(x.shape[0], -1))


def build(width=14, growth=6, classes=8):
    return DenseNet(width, growth, classes)
