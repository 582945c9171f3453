import paddle
from paddle import nn
from paddle.nn.functional import softmax

from xverify.models.paddle_layers import Block, Position


class CausalSoftmax(nn.Layer):
    """Softmax of each token over itself and the tokens before it.

    The mask is part of this layer, so that the input of the layer is finite.
    """

    def forward(self, scores):
        place = paddle.arange(scores.shape[-1])
        future = place > place.unsqueeze(1)
        return softmax(scores.masked_fill(future, float("-inf")), -1)


class Head(nn.Layer):
    """Computes logits with the weight of the token embedding; the layer has no weight itself."""

    def forward(self, x, weight):
        return paddle.matmul(x, weight, transpose_y=True)


class GPT(nn.Layer):
    def __init__(self, vocabulary, dim, depth, heads, length):
        super().__init__()
        self.tok = nn.Embedding(vocabulary, dim)
        self.pos = Position(length, dim)
        self.blocks = nn.LayerList([Block(dim, heads, CausalSoftmax(), 1e-5) for _ in range(depth)])
        self.ln = nn.LayerNorm(dim, epsilon=1e-5)
        self.head = Head()

    def forward(self, tokens):
        x = self.pos(self.tok(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x), self.tok.weight)


def build(vocabulary=1000, dim=128, depth=4, heads=4, length=64):
    return GPT(vocabulary, dim, depth, heads, length)
