"""Attention over several heads, of which the operators of attention are made. Every step is an operation of torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def split(x: Tensor, count: int) -> Tensor:
    """(N, S, count · H) as (N, count, S, H)."""
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def merged(x: Tensor) -> Tensor:
    """(N, heads, S, H) as (N, S, heads · H)."""
    return x.transpose(1, 2).flatten(2)


@dataclass(frozen=True)
class Attended:
    """What an attention computes.

    output: (N, S, heads · H). scores: the products of queries and keys with everything that is added, (N, heads, S, T).
    weights: their softmax.
    """

    output: Tensor
    scores: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Attention:
    """The numbers of an attention.

    scale: factor of the products; 0 for 1 / √H. softcap: the largest size of a score; 0 for none.
    added: what is added to the scores, each of a shape that is broadcast to (N, heads, S, T).
    visible: which keys a query sees, (N or 1, heads or 1, S, T); None for all. A query without any has the result 0.
    sink: a score of each head that takes a part of the softmax, and has no value, (heads,).
    """

    scale: float = 0.0
    softcap: float = 0.0
    added: tuple[Tensor, ...] = ()
    visible: Tensor | None = None
    sink: Tensor | None = None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Attended:
        """Attend with queries (N, heads, S, H) to keys and values (N, heads or fewer, T, H), which groups of heads share."""
        k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
        scores = torch.matmul(q, k.mT) * (self.scale or 1 / math.sqrt(q.shape[-1]))
        if self.softcap:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        for each in self.added:
            scores = scores + each
        weights = self._softmax(scores)
        return Attended(merged(torch.matmul(weights, v)), scores, weights)

    def _softmax(self, scores: Tensor) -> Tensor:
        if self.visible is not None:
            scores = scores.masked_fill(~self.visible, -math.inf)
        if self.sink is not None:
            column = self.sink.to(scores).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
            return torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1]
        weights = torch.softmax(scores, -1)
        blind = None if self.visible is None else ~self.visible.any(-1, keepdim=True)
        return weights if blind is None else weights.masked_fill(blind, 0.0)


def causal(queries: int, keys: int, past: Any = 0, window: int = -1) -> Tensor:
    """Which keys each query sees that follows ``past`` keys: those up to its own place, (N or 1, 1, queries, keys).

    past: for all items, or for each, (N,). window: how many keys a query sees at most, its own included; -1 for all.
    """
    last = torch.arange(queries).view(-1, 1) + torch.as_tensor(past).view(-1, 1, 1, 1)
    places = torch.arange(keys)
    visible = places <= last
    return visible & (places > last - window) if window >= 0 else visible
