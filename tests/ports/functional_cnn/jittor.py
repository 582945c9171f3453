import jittor as jt
from jittor import nn


class Net(nn.Module):
    def __init__(self):
        self.stem = nn.Conv2d(3, 12, 5, 2, 2)
        self.bn = nn.BatchNorm2d(12)
        self.near = nn.Conv2d(12, 8, 1)
        self.far = nn.Conv2d(12, 10, 3, padding=2, dilation=2)
        self.merge = nn.Conv2d(18, 16, 3, 2, 1)
        self.fc1 = nn.Linear(96, 20)
        self.fc2 = nn.Linear(20, 7)

    def execute(self, image):
        x = self.stem(image)
        x = nn.leaky_relu(self.bn(x), 0.1)
        x = nn.pool(x, 3, "maximum", padding=1, stride=1)
        x = jt.concat([nn.relu(self.near(x)), nn.relu(self.far(x))], dim=1)
        x = nn.elu(self.merge(x))
        x = nn.pool(x, 2, "mean")
        x = x.reshape((x.shape[0], -1))
        return self.fc2(nn.relu(self.fc1(x)))


def build():
    return Net()
