import paddle
from paddle import nn
from paddle.nn.functional import softmax
from paddle.nn.initializer import Normal


class Position(nn.Layer):
    """Adds a learned vector to every position."""

    def __init__(self, length, dim):
        super().__init__()
        self.weight = self.create_parameter([length, dim], default_initializer=Normal(0.0, 0.02))

    def forward(self, x):
        return x + self.weight


class CausalSoftmax(nn.Layer):
    """Softmax of each token over itself and the tokens before it.

    The mask is part of this layer, so that the input of the layer is finite.
    """

    def forward(self, scores):
        place = paddle.arange(scores.shape[-1])
        future = place > place.unsqueeze(1)
        return softmax(scores.masked_fill(future, float("-inf")), -1)


class Attention(nn.Layer):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.softmax = CausalSoftmax()
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
        self.ln1 = nn.LayerNorm(dim, epsilon=1e-5)
        self.attn = Attention(dim, heads)
        self.ln2 = nn.LayerNorm(dim, epsilon=1e-5)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.gelu(self.fc1(self.ln2(x))))


class Head(nn.Layer):
    """Computes logits with the weight of the token embedding; the layer has no weight itself."""

    def forward(self, x, weight):
        return paddle.matmul(x, weight, transpose_y=True)


class GPT(nn.Layer):
    def __init__(self, vocabulary, dim, depth, heads, length):
        super().__init__()
        self.tok = nn.Embedding(vocabulary, dim)
        self.pos = Position(length, dim)
        self.blocks = nn.LayerList([Block(dim, heads) for _ in range(depth)])
        self.ln = nn.LayerNorm(dim, epsilon=1e-5)
        self.head = Head()

    def forward(self, tokens):
        x = self.pos(self.tok(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x), self.tok.weight)


def build(vocabulary=1000, dim=128, depth=4, heads=4, length=64):
    return GPT(vocabulary, dim, depth, heads, length)
