from flax import nnx
from jax import numpy as jnp

from xverify.models.flax_layers import Block, Position


class CausalSoftmax(nnx.Module):
    """Softmax of each token over itself and the tokens before it.

    The mask is part of this layer, so that the input of the layer is finite.
    """

    def __call__(self, scores):
        place = jnp.arange(scores.shape[-1])
        future = place > place[:, None]
        return nnx.softmax(jnp.where(future, -jnp.inf, scores), -1)


class Head(nnx.Module):
    """Computes logits with the weight of the token embedding; the layer has no weight itself."""

    def __call__(self, x, weight):
        return x @ weight.T


class GPT(nnx.Module):
    def __init__(self, vocabulary, dim, depth, heads, length, rngs):
        self.tok = nnx.Embed(vocabulary, dim, rngs=rngs)
        self.pos = Position(length, dim, rngs)
        self.blocks = nnx.List([Block(dim, heads, CausalSoftmax(), 1e-5, rngs) for _ in range(depth)])
        self.ln = nnx.LayerNorm(dim, epsilon=1e-5, rngs=rngs)
        self.head = Head()

    def __call__(self, tokens):
        x = self.pos(self.tok(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x), self.tok.embedding[...])


def build(vocabulary=1000, dim=128, depth=4, heads=4, length=64):
    return GPT(vocabulary, dim, depth, heads, length, nnx.Rngs(0))
