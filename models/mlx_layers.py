"""MLX layers that compute the same as torch's layers of the same name, with one module of MLX for one torch module.

They are those of the zoo that mlx.nn does not have. Images are N,H,W,C. A user's own model files may import them.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx import nn


class AdaptiveAvgPool2d(nn.Module):
    """torch.nn.AdaptiveAvgPool2d, for images whose size is a multiple of the result's size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __call__(self, x: Any) -> Any:
        n, height, width, channels = x.shape
        if height % self.size or width % self.size:
            raise ValueError(f"{height}×{width} is not a multiple of {self.size}×{self.size}")
        parts = x.reshape(n, self.size, height // self.size, self.size, width // self.size, channels)
        return parts.mean((2, 4))


class Flatten(nn.Module):
    """torch.flatten(x, 1) of an image, in the order C,H,W, so that the next linear layer has torch's order of columns."""

    def __call__(self, x: Any) -> Any:
        return x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)


class LSTM(nn.Module):
    """torch.nn.LSTM(batch_first=True), with zeros as initial state. It returns the whole sequence of the last layer."""

    def __init__(self, inputs: int, hidden: int, layers: int = 1) -> None:
        super().__init__()
        sizes = [inputs] + [hidden] * (layers - 1)
        self.layers = [nn.LSTM(size, hidden) for size in sizes]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x, _ = layer(x)
        return x

    @property
    def canonical_weights(self) -> dict[str, tuple[str, Any]]:
        suffixes = {"Wx": "weight_ih", "Wh": "weight_hh", "bias": "bias"}
        return {
            f"layers.{index}.{array}": (f"{suffix}_l{index}", None)
            for index in range(len(self.layers))
            for array, suffix in suffixes.items()
        }

    @property
    def canonical_sums(self) -> dict[str, tuple[str, ...]]:
        return {f"bias_l{index}": (f"bias_ih_l{index}", f"bias_hh_l{index}") for index in range(len(self.layers))}


class Position(nn.Module):
    """Adds a learned vector to every position."""

    def __init__(self, length: int, dim: int) -> None:
        super().__init__()
        self.weight = 0.02 * mx.random.normal((length, dim))

    def __call__(self, x: Any) -> Any:
        return x + self.weight


class Attention(nn.Module):
    """Self-attention with separate projections. softmax: the layer that is applied to the scores, (N, heads, T, T)."""

    def __init__(self, dim: int, heads: int, softmax: nn.Module) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.softmax = softmax
        self.proj = nn.Linear(dim, dim)

    def __call__(self, x: Any) -> Any:
        n, length, dim = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(0, 1, 3, 2) / (dim // self.heads) ** 0.5
        x = self.softmax(scores) @ v
        return self.proj(x.transpose(0, 2, 1, 3).reshape(n, length, dim))

    def split(self, x: Any) -> Any:
        n, length, dim = x.shape
        return x.reshape(n, length, self.heads, dim // self.heads).transpose(0, 2, 1, 3)


class Block(nn.Module):
    """Attention and two linear layers, each behind a layer norm and beside a residual connection."""

    def __init__(self, dim: int, heads: int, softmax: nn.Module, eps: float) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(dim, eps=eps)
        self.attn = Attention(dim, heads, softmax)
        self.ln2 = nn.LayerNorm(dim, eps=eps)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(4 * dim, dim)

    def __call__(self, x: Any) -> Any:
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.gelu(self.fc1(self.ln2(x))))
