"""Layers that several models of the zoo have in torch: the blocks of transformers, and an LSTM that is unrolled over time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Position(nn.Module):
    """Adds a learned vector to every position."""

    def __init__(self, length: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(length, dim))

    def forward(self, x: Tensor) -> Tensor:
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

    def forward(self, x: Tensor) -> Tensor:
        n, length, dim = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(2, 3) / (dim // self.heads) ** 0.5
        x = self.softmax(scores) @ v
        return self.proj(x.transpose(1, 2).reshape(n, length, dim))

    def split(self, x: Tensor) -> Tensor:
        n, length, dim = x.shape
        return x.reshape(n, length, self.heads, dim // self.heads).transpose(1, 2)


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

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.gelu(self.fc1(self.ln2(x))))


class UnrolledLSTM(nn.Module):
    """A language model of stacked LSTM cells. cell: makes a cell of (size of its input, size of its state),
    which is called with (input, (h, c)) and returns the new (h, c)."""

    def __init__(
        self,
        cell: Callable[[int, int], nn.Module],
        vocabulary: int,
        embedding: int,
        hidden: int,
        layers: int,
        length: int,
    ) -> None:
        super().__init__()
        self.hidden = hidden
        self.length = length
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.cells = nn.ModuleList(cell(hidden if layer else embedding, hidden) for layer in range(layers))
        self.fc = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for cell in self.cells:
            h = x.new_zeros(x.shape[0], self.hidden)
            c = x.new_zeros(x.shape[0], self.hidden)
            outputs = []
            for t in range(self.length):
                h, c = cell(x[:, t], (h, c))
                outputs.append(h)
            x = torch.stack(outputs, 1)
        return self.fc(x)
