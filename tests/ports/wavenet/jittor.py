import jittor as jt
from jittor import nn


class ResidualBlock(nn.Module):
    def __init__(self, residual, gate, skip, cond, kernel, dilation):
        self.pad = (kernel - 1) * dilation
        self.conv = nn.Conv1d(residual, gate, kernel, padding=self.pad, dilation=dilation)
        self.cond = nn.Conv1d(cond, gate, 1, bias=False)
        self.out = nn.Conv1d(gate // 2, residual, 1)
        self.skip = nn.Conv1d(gate // 2, skip, 1)

    def execute(self, x, c):
        y = self.conv(x)[:, :, : -self.pad]
        y = y + self.cond(c)
        half = y.shape[1] // 2
        y = jt.tanh(y[:, :half]) * jt.sigmoid(y[:, half:])
        return (x + self.out(y)) * 0.5**0.5, self.skip(y)


class WaveNet(nn.Module):
    def __init__(self, classes=32, residual=10, gate=12, skip=14, cond=5, kernel=2, dilations=(1, 2, 4), hop=4):
        self.hop = hop
        self.embed = nn.Embedding(classes, residual)
        self.blocks = nn.ModuleList([ResidualBlock(residual, gate, skip, cond, kernel, d) for d in dilations])
        self.post1 = nn.Conv1d(skip, skip, 1)
        self.post2 = nn.Conv1d(skip, classes, 1)

    def execute(self, samples, frames):
        start = jt.full((samples.shape[0], 1), 16).cast(samples.dtype)
        samples = jt.concat([start, samples[:, :-1]], dim=1)
        x = self.embed(samples).permute(0, 2, 1)
        b, ch, n = frames.shape
        c = frames.unsqueeze(-1).expand(b, ch, n, self.hop).reshape(b, ch, n * self.hop)
        total = None
        for block in self.blocks:
            x, s = block(x, c)
            total = s if total is None else total + s
        total = total * (1.0 / len(self.blocks)) ** 0.5
        y = nn.relu(self.post1(nn.relu(total)))
        return self.post2(y)


def build():
    return WaveNet()
