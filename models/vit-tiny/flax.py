from flax import nnx
from jax import numpy as jnp

from xverify.models.flax_layers import Block, Position, Softmax


class Token(nnx.Module):
    """Puts a learned token before the others."""

    def __init__(self, dim, rngs):
        self.weight = nnx.Param(nnx.initializers.normal(0.02)(rngs.params(), (1, dim)))

    def __call__(self, x):
        token = jnp.broadcast_to(self.weight[...], (x.shape[0], 1, x.shape[-1]))
        return jnp.concatenate([token, x], 1)


class ViT(nnx.Module):
    def __init__(self, image, patch, dim, depth, heads, classes, rngs):
        self.patch = nnx.Conv(3, dim, (patch, patch), patch, padding="VALID", rngs=rngs)
        self.cls = Token(dim, rngs)
        self.pos = Position((image // patch) ** 2 + 1, dim, rngs)
        self.blocks = nnx.List([Block(dim, heads, Softmax(-1), 1e-6, rngs) for _ in range(depth)])
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
