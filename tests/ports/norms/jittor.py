import jittor as jt
from jittor import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        self.eps = eps
        self.weight = jt.ones(dim)

    def execute(self, x):
        variance = (x * x).mean(-1, keepdims=True)
        return self.weight * x / jt.sqrt(variance + self.eps)


class Net(nn.Module):
    def __init__(self):
        self.conv1 = nn.Conv2d(3, 12, 3, padding=1)
        self.gn = nn.GroupNorm(4, 12)
        self.conv2 = nn.Conv2d(12, 10, 3, stride=2, padding=1, bias=False)
        self.inorm = nn.InstanceNorm2d(10, affine=True)
        self.conv3 = nn.Conv2d(10, 16, 3, bias=False)
        self.bn = nn.BatchNorm2d(16, eps=1e-3)
        self.ln = nn.LayerNorm(16, elementwise_affine=False)
        self.fc1 = nn.Linear(16, 24)
        self.rms = RMSNorm(24)
        self.fc2 = nn.Linear(24, 8)

    def execute(self, image):
        x = nn.relu(self.gn(self.conv1(image)))
        x = nn.relu(self.inorm(self.conv2(x)))
        x = nn.relu(self.bn(self.conv3(x)))
        n, c, h, w = x.shape
        x = x.reshape(n, c, h * w).permute(0, 2, 1)
        x = self.rms(nn.silu(self.fc1(self.ln(x))))
        return jt.normalize(self.fc2(x), dim=-1)


def build():
    return Net()
