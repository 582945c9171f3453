import mlx.core as mx
from mlx import nn

from xverify.models.mlx_layers import Block, Position


class CausalSoftmax(nn.Module):
    """Softmax of each token over itself and the tokens before it.

    The mask is part of this layer, so that the input of the layer is finite.
    """

    def __call__(self, scores):
        place = mx.arange(scores.shape[-1])
        future = place > place[:, None]
        return mx.softmax(mx.where(future, -mx.inf, scores), -1)


class Head(nn.Module):
    """Computes logits with the weight of the token embedding; the layer has no weight itself."""

    def __call__(self, x, weight):
        return x @ weight.T


class GPT(nn.Module):
    def __init__(self, vocabulary, dim, depth, heads, length):
        super().__init__()
        self.tok = nn.Embedding(vocabulary, dim)
        self.pos = Position(length, dim)
        self.blocks = [Block(dim, heads, CausalSoftmax(), 1e-5) for _ in range(depth)]
        self.ln = nn.LayerNorm(dim, eps=1e-5)
        self.head = Head()

    def __call__(self, tokens):
        x = self.pos(self.tok(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x), self.tok.weight)


def build(vocabulary=1000, dim=128, depth=4, heads=4, length=64):
    return GPT(vocabulary, dim, depth, heads, length)
