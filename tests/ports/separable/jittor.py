import jittor as jt
from jittor import nn


def normed(inputs, outputs, kernel=1, stride=1, groups=1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs, eps=1e-3))


def hard_sigmoid(x):
    return nn.relu6(x + 3) / 6


def hard_swish(x):
    return x * jt.clamp(x + 3, 0, 6) / 6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = normed(3, 8, 3, 2)
        self.expand = normed(8, 24)
        self.depthwise = normed(24, 24, 5, groups=24)
        self.squeeze = nn.Linear(24, 6)
        self.excite = nn.Linear(6, 24)
        self.project = normed(24, 8)
        self.down = normed(8, 8, 3, 2, groups=8)
        self.last = normed(8, 20)
        self.fc = nn.Linear(20, 7)

    def execute(self, image):
        x = hard_swish(self.stem(image))
        y = nn.relu6(self.expand(x))
        y = nn.relu6(self.depthwise(y))
        n, c = y.shape[:2]
        scale = nn.relu(self.squeeze(y.mean(dims=(2, 3))))
        scale = hard_sigmoid(self.excite(scale)).reshape(n, c, 1, 1)
        x = x + self.project(y * scale)
        x = nn.relu6(self.down(x))
        x = hard_swish(self.last(x))
        return self.fc(x.mean(dims=(2, 3)))


def build():
    return Net()
