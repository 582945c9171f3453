import paddle
from paddle import nn
from paddle.nn.initializer import Normal

from xverify.models.paddle_layers import Block, Position


class Token(nn.Layer):
    """Puts a learned token before the others."""

    def __init__(self, dim):
        super().__init__()
        self.weight = self.create_parameter([1, dim], default_initializer=Normal(0.0, 0.02))

    def forward(self, x):
        return paddle.concat([self.weight.expand([x.shape[0], 1, -1]), x], 1)


class ViT(nn.Layer):
    def __init__(self, image, patch, dim, depth, heads, classes):
        super().__init__()
        self.patch = nn.Conv2D(3, dim, patch, patch)
        self.cls = Token(dim)
        self.pos = Position((image // patch) ** 2 + 1, dim)
        self.blocks = nn.LayerList([Block(dim, heads, nn.Softmax(-1), 1e-6) for _ in range(depth)])
        self.ln = nn.LayerNorm(dim, epsilon=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose([0, 2, 1])
        x = self.pos(self.cls(x))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)[:, 0])


def build(image=64, patch=8, dim=192, depth=6, heads=3, classes=10):
    return ViT(image, patch, dim, depth, heads, classes)
