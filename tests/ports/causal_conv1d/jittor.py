import jittor as jt
from jittor import nn


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.past = 2 * dilation
        self.filter = nn.Conv1d(width, width, 3, dilation=dilation)
        self.gate = nn.Conv1d(width, width, 3, dilation=dilation)
        self.residual = nn.Conv1d(width, width, 1)
        self.skip = nn.Conv1d(width, 14, 1)

    def execute(self, x):
        n, c, _ = x.shape
        past = jt.concat([jt.zeros((n, c, self.past)), x], dim=2)
        z = jt.tanh(self.filter(past)) * jt.sigmoid(self.gate(past))
        return x + self.residual(z), self.skip(z)


class WaveNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Conv1d(4, width, 1)
        self.blocks = nn.ModuleList([Block(width, 2**i) for i in range(depth)])
        self.head1 = nn.Conv1d(14 + width, 9, 1)
        self.head2 = nn.Conv1d(9, 5, 1)

    def execute(self, signal):
        x = self.stem(signal)
        skips = []
        for block in self.blocks:
            x, skip = block(x)
            skips.append(skip)
        x = nn.relu(jt.concat([sum(skips), x], dim=1))
        return self.head2(nn.relu(self.head1(x)))


def build(width=10, depth=3):
    return WaveNet(width, depth)
