from flax import nnx
from jax import numpy as jnp

from xverify.models.flax_layers import GELU


class Position(nnx.Module):
    """Adds a learned vector to every position."""

    def __init__(self, length, dim, rngs):
        self.weight = nnx.Param(nnx.initializers.normal(0.02)(rngs.params(), (length, dim)))

    def __call__(self, x):
        return x + self.weight


class CausalSoftmax(nnx.Module):
    """Softmax of each token over itself and the tokens before it.

    The mask is part of this layer, so that the input of the layer is finite.
    """

    def __call__(self, scores):
        place = jnp.arange(scores.shape[-1])
        future = place > place[:, None]
        return nnx.softmax(jnp.where(future, -jnp.inf, scores), -1)


class Attention(nnx.Module):
    def __init__(self, dim, heads, rngs):
        self.heads = heads
        self.q = nnx.Linear(dim, dim, rngs=rngs)
        self.k = nnx.Linear(dim, dim, rngs=rngs)
        self.v = nnx.Linear(dim, dim, rngs=rngs)
        self.softmax = CausalSoftmax()
        self.proj = nnx.Linear(dim, dim, rngs=rngs)

    def __call__(self, x):
        n, length, dim = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(0, 1, 3, 2) / (dim // self.heads) ** 0.5
        x = self.softmax(scores) @ v
        return self.proj(x.transpose(0, 2, 1, 3).reshape(n, length, dim))

    def split(self, x):
        n, length, dim = x.shape
        return x.reshape(n, length, self.heads, dim // self.heads).transpose(0, 2, 1, 3)


class Block(nnx.Module):
    def __init__(self, dim, heads, rngs):
        self.ln1 = nnx.LayerNorm(dim, epsilon=1e-5, rngs=rngs)
        self.attn = Attention(dim, heads, rngs)
        self.ln2 = nnx.LayerNorm(dim, epsilon=1e-5, rngs=rngs)
        self.fc1 = nnx.Linear(dim, 4 * dim, rngs=rngs)
        self.gelu = GELU()
        self.fc2 = nnx.Linear(4 * dim, dim, rngs=rngs)

    def __call__(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.gelu(self.fc1(self.ln2(x))))


class Head(nnx.Module):
    """Computes logits with the weight of the token embedding; the layer has no weight itself."""

    def __call__(self, x, weight):
        return x @ weight.T


class GPT(nnx.Module):
    def __init__(self, vocabulary, dim, depth, heads, length, rngs):
        self.tok = nnx.Embed(vocabulary, dim, rngs=rngs)
        self.pos = Position(length, dim, rngs)
        self.blocks = nnx.List([Block(dim, heads, rngs) for _ in range(depth)])
        self.ln = nnx.LayerNorm(dim, epsilon=1e-5, rngs=rngs)
        self.head = Head()

    def __call__(self, tokens):
        x = self.pos(self.tok(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x), self.tok.embedding[...])


def build(vocabulary=1000, dim=128, depth=4, heads=4, length=64):
    return GPT(vocabulary, dim, depth, heads, length, nnx.Rngs(0))
