"""Flax layers that compute the same as torch's layers of the same name, with one module of Flax for one torch module.

flax.nnx has activations and pooling as functions. These are modules, so that each of them is captured and compared. Images
are N,H,W,C. A user's own model files may import them.
"""

from __future__ import annotations

from typing import Any

from flax import nnx
from jax import numpy as jnp

from xverify.weights.flax import LAYERS, SUMS


class ReLU(nnx.Module):
    """torch.nn.ReLU."""

    def __call__(self, x: Any) -> Any:
        return nnx.relu(x)


class GELU(nnx.Module):
    """torch.nn.GELU() with the error function. nnx.gelu uses the tanh approximation, unless it is told otherwise."""

    def __call__(self, x: Any) -> Any:
        return nnx.gelu(x, approximate=False)


class Softmax(nnx.Module):
    """torch.nn.Softmax."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def __call__(self, x: Any) -> Any:
        return nnx.softmax(x, self.axis)


class MaxPool2d(nnx.Module):
    """torch.nn.MaxPool2d. It pads with minus infinity."""

    def __init__(self, kernel: int, stride: int | None = None, padding: int = 0) -> None:
        self.kernel, self.stride, self.padding = kernel, stride or kernel, padding

    def __call__(self, x: Any) -> Any:
        pads = ((self.padding, self.padding),) * 2
        return nnx.max_pool(x, (self.kernel, self.kernel), (self.stride, self.stride), pads)


class AdaptiveAvgPool2d(nnx.Module):
    """torch.nn.AdaptiveAvgPool2d, for images whose size is a multiple of the result's size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, x: Any) -> Any:
        height, width = x.shape[1:3]
        if height % self.size or width % self.size:
            raise ValueError(f"{height}×{width} is not a multiple of {self.size}×{self.size}")
        if self.size == 1:
            return x.mean((1, 2), keepdims=True)
        window = (height // self.size, width // self.size)
        return nnx.avg_pool(x, window, window)


class Flatten(nnx.Module):
    """torch.flatten(x, 1) of an image, in the order C,H,W, so that the next linear layer has torch's order of columns."""

    def __call__(self, x: Any) -> Any:
        return jnp.transpose(x, (0, 3, 1, 2)).reshape(x.shape[0], -1)


class LSTM(nnx.Module):
    """torch.nn.LSTM(batch_first=True), with zeros as initial state. It returns the whole sequence."""

    def __init__(self, inputs: int, hidden: int, layers: int = 1, *, rngs: nnx.Rngs) -> None:
        sizes = [inputs] + [hidden] * (layers - 1)
        self.layers = nnx.List([nnx.RNN(nnx.OptimizedLSTMCell(size, hidden, rngs=rngs)) for size in sizes])

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    @property
    def canonical_weights(self) -> dict[str, tuple[str, Any]]:
        return {
            f"layers.{index}.cell.{path}": (f"{suffix}_l{index}", axes)
            for index in range(len(self.layers))
            for path, (suffix, axes) in LAYERS["OptimizedLSTMCell"].items()
        }

    @property
    def canonical_sums(self) -> dict[str, tuple[str, ...]]:
        return {
            f"{total}_l{index}": tuple(f"{part}_l{index}" for part in parts)
            for index in range(len(self.layers))
            for total, parts in SUMS["OptimizedLSTMCell"].items()
        }


class Position(nnx.Module):
    """Adds a learned vector to every position."""

    def __init__(self, length: int, dim: int, rngs: nnx.Rngs) -> None:
        self.weight = nnx.Param(nnx.initializers.normal(0.02)(rngs.params(), (length, dim)))

    def __call__(self, x: Any) -> Any:
        return x + self.weight


class Attention(nnx.Module):
    """Self-attention with separate projections. softmax: the layer that is applied to the scores, (N, heads, T, T)."""

    def __init__(self, dim: int, heads: int, softmax: nnx.Module, rngs: nnx.Rngs) -> None:
        self.heads = heads
        self.q = nnx.Linear(dim, dim, rngs=rngs)
        self.k = nnx.Linear(dim, dim, rngs=rngs)
        self.v = nnx.Linear(dim, dim, rngs=rngs)
        self.softmax = softmax
        self.proj = nnx.Linear(dim, dim, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        n, length, dim = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(0, 1, 3, 2) / (dim // self.heads) ** 0.5
        x = self.softmax(scores) @ v
        return self.proj(x.transpose(0, 2, 1, 3).reshape(n, length, dim))

    def split(self, x: Any) -> Any:
        n, length, dim = x.shape
        return x.reshape(n, length, self.heads, dim // self.heads).transpose(0, 2, 1, 3)


class Block(nnx.Module):
    """Attention and two linear layers, each behind a layer norm and beside a residual connection."""

    def __init__(self, dim: int, heads: int, softmax: nnx.Module, eps: float, rngs: nnx.Rngs) -> None:
        self.ln1 = nnx.LayerNorm(dim, epsilon=eps, rngs=rngs)
        self.attn = Attention(dim, heads, softmax, rngs)
        self.ln2 = nnx.LayerNorm(dim, epsilon=eps, rngs=rngs)
        self.fc1 = nnx.Linear(dim, 4 * dim, rngs=rngs)
        self.gelu = GELU()
        self.fc2 = nnx.Linear(4 * dim, dim, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.gelu(self.fc1(self.ln2(x))))
