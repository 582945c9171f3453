import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Net(nn.Module):
    def __init__(self):
        super().__init__()
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

    def forward(self, image):
        x = F.relu(self.gn(self.conv1(image)))
        x = F.relu(self.inorm(self.conv2(x)))
        x = F.relu(self.bn(self.conv3(x)))
        x = x.flatten(2).transpose(1, 2)
        x = F.silu(self.fc1(self.ln(x)))
        return F.normalize(self.fc2(self.rms(x)), dim=-1)


def build():
    return Net()
