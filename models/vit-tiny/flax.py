from flax import nnx
from jax import numpy as jnp

from xverify.models.flax_layers import GELU, Softmax


class Token(nnx.Module):
    """Puts a learned token before the others."""

    def __init__(self, dim, rngs):
        self.weight = nnx.Param(nnx.initializers.normal(0.02)(rngs.params(), (1, dim)))

    def __call__(self, x):
        token = jnp.broadcast_to(self.weight[...], (x.shape[0], 1, x.shape[-1]))
        return jnp.concatenate([token, x], 1)


class Position(nnx.Module):
    """Adds a learned vector to every position."""

    def __init__(self, length, dim, rngs):
        self.weight = nnx.Param(nnx.initializers.normal(0.02)(rngs.params(), (length, dim)))

    def __call__(self, x):
        return x + self.weight


class Attention(nnx.Module):
    def __init__(self, dim, heads, rngs):
        self.heads = heads
        self.q = nnx.Linear(dim, dim, rngs=rngs)
        self.k = nnx.Linear(dim, dim, rngs=rngs)
        self.v = nnx.Linear(dim, dim, rngs=rngs)
        self.softmax = Softmax(-1)
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
        self.ln1 = nnx.LayerNorm(dim, epsilon=1e-6, rngs=rngs)
        self.attn = Attention(dim, heads, rngs)
        self.ln2 = nnx.LayerNorm(dim, epsilon=1e-6, rngs=rngs)
        self.fc1 = nnx.Linear(dim, 4 * dim, rngs=rngs)
        self.gelu = GELU()
        self.fc2 = nnx.Linear(4 * dim, dim, rngs=rngs)

    def __call__(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.gelu(self.fc1(self.ln2(x))))


class ViT(nnx.Module):
    def __init__(self, image, patch, dim, depth, heads, classes, rngs):
        self.patch = nnx.Conv(3, dim, (patch, patch), patch, padding="VALID", rngs=rngs)
        self.cls = Token(dim, rngs)
        self.pos = Position((image // patch) ** 2 + 1, dim, rngs)
        self.blocks = nnx.List([Block(dim, heads, rngs) for _ in range(depth)])
        self.ln = nnx.LayerNorm(dim, epsilon=1e-6, rngs=rngs)
        self.head = nnx.Linear(dim, classes, rngs=rngs)

    def __call__(self, x):
        x = self.patch(x)
        x = self.pos(self.cls(x.reshape(x.shape[0], -1, x.shape[-1])))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)[:, 0])


def build(image=64, patch=8, dim=192, depth=6, heads=3, classes=10):
    return ViT(image, patch, dim, depth, heads, classes, nnx.Rngs(0))
