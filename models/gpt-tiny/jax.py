import jax.numpy as jnp
import numpy as np
from jax import nn


class GPT:
    def __init__(self, vocabulary, dim, depth, heads, length):
        self.depth = depth
        self.heads = heads
        shapes: dict[str, tuple[int, ...]] = {"tok.weight": (vocabulary, dim), "pos.weight": (length, dim)}
        for index in range(depth):
            shapes |= block_shapes(f"blocks.{index}", dim)
        shapes |= {"ln.weight": (dim,), "ln.bias": (dim,)}
        self.weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}

    def apply(self, w, tokens):
        x = w["tok.weight"][tokens] + w["pos.weight"]
        for index in range(self.depth):
            x = block(w, f"blocks.{index}", x, self.heads)
        return layer_norm(w, "ln", x) @ w["tok.weight"].T


def block_shapes(name, dim):
    layers: dict[str, tuple[int, ...]] = {
        "attn.q": (dim, dim),
        "attn.k": (dim, dim),
        "attn.v": (dim, dim),
        "attn.proj": (dim, dim),
    }
    layers |= {"ln1": (dim,), "ln2": (dim,), "fc1": (4 * dim, dim), "fc2": (dim, 4 * dim)}
    shapes = {f"{name}.{layer}.weight": shape for layer, shape in layers.items()}
    return shapes | {f"{name}.{layer}.bias": shape[:1] for layer, shape in layers.items()}


def linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def layer_norm(w, name, x, eps=1e-5):
    x = x - x.mean(-1, keepdims=True)
    x = x / jnp.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return x * w[f"{name}.weight"] + w[f"{name}.bias"]


def causal_softmax(scores):
    place = jnp.arange(scores.shape[-1])
    future = place > place[:, None]
    return nn.softmax(jnp.where(future, -jnp.inf, scores), -1)


def attention(w, name, x, heads):
    n, length, dim = x.shape

    def split(x):
        return x.reshape(n, length, heads, dim // heads).transpose(0, 2, 1, 3)

    q, k, v = (split(linear(w, f"{name}.{part}", x)) for part in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) / (dim // heads) ** 0.5
    x = causal_softmax(scores) @ v
    return linear(w, f"{name}.proj", x.transpose(0, 2, 1, 3).reshape(n, length, dim))


def block(w, name, x, heads):
    x = x + attention(w, f"{name}.attn", layer_norm(w, f"{name}.ln1", x), heads)
    out = nn.gelu(linear(w, f"{name}.fc1", layer_norm(w, f"{name}.ln2", x)), approximate=False)
    return x + linear(w, f"{name}.fc2", out)


def build(vocabulary=1000, dim=128, depth=4, heads=4, length=64):
    return GPT(vocabulary, dim, depth, heads, length)
