import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 5, stride=2, padding=2)
        self.bn = nn.BatchNorm2d(12)
        self.near = nn.Conv2d(12, 8, 1)
        self.far = nn.Conv2d(12, 10, 3, padding=2, dilation=2)
        self.merge = nn.Conv2d(18, 16, 3, stride=2, padding=1)
        self.fc1 = nn.Linear(96, 20)
        self.fc2 = nn.Linear(20, 7)

    def forward(self, image):
        x = F.leaky_relu(self.bn(self.stem(image)), 0.1)
        x = F.max_pool2d(x, 3, stride=1, padding=1)
        x = torch.cat([F.relu(self.near(x)), F.relu(self.far(x))], 1)
        x = F.avg_pool2d(F.elu(self.merge(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def build():
    return Net()
