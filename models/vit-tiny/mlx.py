import mlx.core as mx
from mlx import nn

from xverify.models.mlx_layers import Block, Position


class Token(nn.Module):
    """Puts a learned token before the others."""

    def __init__(self, dim):
        super().__init__()
        self.weight = 0.02 * mx.random.normal((1, dim))

    def __call__(self, x):
        token = mx.broadcast_to(self.weight, (x.shape[0], 1, x.shape[-1]))
        return mx.concatenate([token, x], 1)


class ViT(nn.Module):
    def __init__(self, image, patch, dim, depth, heads, classes):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, patch, patch)
        self.cls = Token(dim)
        self.pos = Position((image // patch) ** 2 + 1, dim)
        self.blocks = [Block(dim, heads, nn.Softmax(), 1e-6) for _ in range(depth)]
        self.ln = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def __call__(self, x):
        x = self.patch(x)
        x = self.pos(self.cls(x.reshape(x.shape[0], -1, x.shape[-1])))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)[:, 0])


def build(image=64, patch=8, dim=192, depth=6, heads=3, classes=10):
    return ViT(image, patch, dim, depth, heads, classes)
