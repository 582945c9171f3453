import jittor as jt
from jittor import nn


class Net(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.mix = jt.randn(width, width)
        self.inner = nn.Linear(width, width)
        self.scale = nn.Linear(width, width)

    def execute(self, x):
        x = jt.matmul(x, self.mix.transpose(1, 0))
        log_det = jt.log(jt.abs(jt.linalg.det(self.mix))) * x.shape[1]
        shift, scale = self.inner(x), jt.tanh(self.scale(x))
        z = x * jt.exp(scale) + shift
        log_det = log_det + scale.sum(2).sum(1)
        return z, (log_det - 0.5 * (z * z).mean(2).mean(1)).mean()


def build():
    return Net()
