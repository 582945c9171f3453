import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.past = 2 * dilation
        self.filter = nn.Conv1d(width, width, 3, dilation=dilation)
        self.gate = nn.Conv1d(width, width, 3, dilation=dilation)
        self.residual = nn.Conv1d(width, width, 1)
        self.skip = nn.Conv1d(width, 14, 1)

    def forward(self, x):
        past = F.pad(x, (self.past, 0))
        z = torch.tanh(self.filter(past)) * torch.sigmoid(self.gate(past))
        return x + self.residual(z), self.skip(z)


class WaveNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Conv1d(4, width, 1)
        self.blocks = nn.ModuleList(Block(width, 2**index) for index in range(depth))
        self.head1 = nn.Conv1d(14 + width, 9, 1)
        self.head2 = nn.Conv1d(9, 5, 1)

    def forward(self, signal):
        x, total = self.stem(signal), 0
        for block in self.blocks:
            x, skip = block(x)
            total = total + skip
        x = F.relu(torch.cat([total, x], 1))
        return self.head2(F.relu(self.head1(x)))


def build(width=10, depth=3):
    return WaveNet(width, depth)
