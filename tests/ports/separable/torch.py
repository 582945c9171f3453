import torch.nn.functional as F
from torch import nn


def normed(inputs, outputs, kernel=1, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
    )


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

    def forward(self, image):
        x = F.hardswish(self.stem(image))
        y = F.relu6(self.expand(x))
        y = F.relu6(self.depthwise(y))
        scale = F.relu(self.squeeze(y.mean((2, 3))))
        scale = F.hardsigmoid(self.excite(scale))
        x = x + self.project(y * scale[:, :, None, None])
        x = F.relu6(self.down(x))
        x = F.hardswish(self.last(x))
        return self.fc(x.mean((2, 3)))


def build():
    return Net()
