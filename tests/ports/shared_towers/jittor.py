import jittor as jt
from jittor import nn


class Encoder(nn.Module):
    """An image becomes a vector of length one."""

    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, 3, padding=1)
        self.norm = nn.GroupNorm(4, 8)
        self.conv2 = nn.Conv2d(8, 12, 3, padding=1)
        self.fc = nn.Linear(12, width)

    def execute(self, x):
        x = nn.leaky_relu(self.norm(self.conv1(x)), 0.2)
        x = nn.avg_pool2d(x, 2)
        x = nn.relu(self.conv2(x))
        x = self.fc(x.mean(dims=(2, 3)))
        return jt.normalize(x, dim=1)


class Towers(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encoder = Encoder(width)
        self.hidden = nn.Linear(2 * width, 9)
        self.out = nn.Linear(9, 3)

    def execute(self, left, right):
        a = self.encoder(left)
        b = self.encoder(right)
        x = jt.concat([jt.abs(a - b), a * b], dim=1)
        return self.out(jt.tanh(self.hidden(x)))


def build(width=10):
    return Towers(width)
