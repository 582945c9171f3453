import paddle
from paddle import nn
from paddle.nn.initializer import Normal


class Token(nn.Layer):
    """Puts a learned token before the others."""

    def __init__(self, dim):
        super().__init__()
        self.weight = self.create_parameter([1, dim], default_initializer=Normal(0.0, 0.02))

    def forward(self, x):
        return paddle.concat([self.weight.expand([x.shape[0], 1, -1]), x], 1)


class Position(nn.Layer):
    """Adds a learned vector to every position."""

    def __init__(self, length, dim):
        super().__init__()
        self.weight = self.create_parameter([length, dim], default_initializer=Normal(0.0, 0.02))

    def forward(self, x):
        return x + self.weight


class Attention(nn.Layer):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.softmax = nn.Softmax(-1)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        n, length, dim = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose([0, 1, 3, 2]) / (dim // self.heads) ** 0.5
        x = self.softmax(scores) @ v
        return self.proj(x.transpose([0, 2, 1, 3]).reshape([n, length, dim]))

    def split(self, x):
        n, length, dim = x.shape
        return x.reshape([n, length, self.heads, dim // self.heads]).transpose([0, 2, 1, 3])


class Block(nn.Layer):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1 = nn.LayerNorm(dim, epsilon=1e-6)
        self.attn = Attention(dim, heads)
        self.ln2 = nn.LayerNorm(dim, epsilon=1e-6)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.gelu(self.fc1(self.ln2(x))))


class ViT(nn.Layer):
    def __init__(self, image, patch, dim, depth, heads, classes):
        super().__init__()
        self.patch = nn.Conv2D(3, dim, patch, patch)
        self.cls = Token(dim)
        self.pos = Position((image // patch) ** 2 + 1, dim)
        self.blocks = nn.LayerList([Block(dim, heads) for _ in range(depth)])
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
