"""Layers that several models of the zoo have in PaddlePaddle: the blocks of transformers."""

from __future__ import annotations

from typing import Any

from paddle import nn
from paddle.nn.initializer import Normal


class Position(nn.Layer):
    """Adds a learned vector to every position."""

    def __init__(self, length: int, dim: int) -> None:
        super().__init__()
        self.weight = self.create_parameter([length, dim], default_initializer=Normal(0.0, 0.02))

    def forward(self, x: Any) -> Any:
        return x + self.weight


class Attention(nn.Layer):
    """Self-attention with separate projections. softmax: the layer that is applied to the scores, (N, heads, T, T)."""

    def __init__(self, dim: int, heads: int, softmax: nn.Layer) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.softmax = softmax
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        n, length, dim = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose([0, 1, 3, 2]) / (dim // self.heads) ** 0.5
        x = self.softmax(scores) @ v
        return self.proj(x.transpose([0, 2, 1, 3]).reshape([n, length, dim]))

    def split(self, x: Any) -> Any:
        n, length, dim = x.shape
        return x.reshape([n, length, self.heads, dim // self.heads]).transpose([0, 2, 1, 3])


class Block(nn.Layer):
    """Attention and two linear layers, each behind a layer norm and beside a residual connection."""

    def __init__(self, dim: int, heads: int, softmax: nn.Layer, eps: float) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(dim, epsilon=eps)
        self.attn = Attention(dim, heads, softmax)
        self.ln2 = nn.LayerNorm(dim, epsilon=eps)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.gelu(self.fc1(self.ln2(x))))
