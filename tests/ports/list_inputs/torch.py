import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.embed = nn.Linear(5, 6)
        self.head = nn.Linear(12, 4)

    def forward(self, image, meta):
        x = torch.relu(self.norm(self.conv(image))).mean((2, 3))
        return self.head(torch.cat([x, torch.tanh(self.embed(meta))], 1))


def build():
    return Net()
