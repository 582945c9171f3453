import jittor as jt
from jittor import nn


def pad(x, before, behind):
    n, c, _ = x.shape
    return jt.concat([jt.zeros((n, c, before)), x, jt.zeros((n, c, behind))], dim=2)


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv1d(4, width, 1)
        self.position = nn.Conv1d(width, width, 6, groups=2)
        self.late = nn.Conv1d(width, width, 4)
        self.causal = nn.Conv1d(width, width, 3, padding=4, dilation=2)
        self.inner = nn.Conv1d(width, width, 5)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Conv1d(width, 5, 1)

    def execute(self, signal):
        x = self.stem(signal)
        x = x + nn.gelu(self.position(pad(x, 3, 2)))
        x = x + nn.gelu(self.late(pad(x, 1, 2)))
        x = x + nn.silu(self.causal(x)[:, :, : x.shape[2]])
        x = x + jt.tanh(self.inner(pad(x, 2, 2)))
        return self.head(self.norm(x.transpose(0, 2, 1)).transpose(0, 2, 1))


def build():
    return Net()
