import jittor as jt
from jittor import nn


class LayerNorm2d(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = jt.ones((dim,))
        self.bias = jt.zeros((dim,))
        self.eps = eps

    def execute(self, x):
        x = x - x.mean(dim=1, keepdims=True)
        var = (x * x).mean(dim=1, keepdims=True)
        x = x / jt.sqrt(var + self.eps)
        return x * self.weight.reshape(1, -1, 1, 1) + self.bias.reshape(1, -1, 1, 1)


class Block(nn.Module):
    def __init__(self, dim, layer_scale):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = jt.ones((dim,)) * layer_scale

    def execute(self, x):
        y = self.dwconv(x)
        y = y.permute(0, 2, 3, 1)
        y = self.norm(y)
        y = self.act(self.pwconv1(y))
        y = self.pwconv2(y)
        y = self.gamma * y
        y = y.permute(0, 3, 1, 2)
        return x + y


class ConvNet(nn.Module):
    def __init__(self, dim, depth, classes, layer_scale):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, kernel_size=2, stride=2)
        self.stem_norm = LayerNorm2d(dim)
        self.blocks = nn.Sequential(*[Block(dim, layer_scale) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def execute(self, x):
        x = self.stem_norm(self.stem(x))
        x = self.blocks(x)
        x = x.mean([2, 3])
        return self.head(self.norm(x))


def build(dim=22, depth=2, classes=9, layer_scale=0.1):
    return ConvNet(dim, depth, classes, layer_scale)
