import jittor as jt
from jittor import nn


class NormedLinear(nn.Module):
    """A linear layer that divides its weight by an estimate of the largest singular value, from two vectors that it keeps."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.original = jt.randn(outputs, inputs)
        self.bias = jt.zeros(outputs)
        self.u = jt.randn(outputs).stop_grad()
        self.v = jt.randn(inputs).stop_grad()

    def execute(self, x):
        u, v = self.u, self.v
        sigma = (u * (self.original * v).sum(1)).sum()
        return nn.matmul_transpose(x, self.original / sigma) + self.bias


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = NormedLinear(9, 14)
        self.fc2 = nn.Linear(14, 12)
        self.fc3 = nn.Linear(12, 14, bias=False)
        self.head = nn.Linear(14, 4)

    def execute(self, rows):
        x = nn.leaky_relu(self.fc1(rows), 0.2)
        y = nn.leaky_relu(self.fc2(x), 0.2)
        return self.head(x + self.fc3(y))


def build():
    return Critic()
