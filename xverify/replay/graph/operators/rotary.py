"""Rotary position embeddings: pairs of values, turned by an angle that grows with the position."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..values import tensor
from .heads import merged, split
from .registry import MICROSOFT, Call, operator


def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """x with the pairs of its first values turned; the values behind them stay as they are.

    x: (N, heads, S, H). cos, sin: of each position, (N or 1, S, pairs).
    interleaved: whether pairs are neighbours; else the second value of each is in the second half.
    """
    width = 2 * cos.shape[-1]
    cos, sin, rest = cos.unsqueeze(1), sin.unsqueeze(1), x[..., width:]
    pairs = x[..., :width]
    a, b = (pairs[..., ::2], pairs[..., 1::2]) if interleaved else pairs.chunk(2, -1)
    turned = a * cos - b * sin, a * sin + b * cos
    joined = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    return torch.cat([joined, rest], -1)


@operator("RotaryEmbedding", domain=MICROSOFT, composed=True)
def rotary_of_runtime(call: Call, x: Any, positions: Any, cos: Any, sin: Any) -> Any:
    """Turn the values of each head.

    x: (N, S, heads · H) or (N, heads, S, H). positions: of each value, (N, S), or of the first one, (1,). cos, sin: a table by
    position.
    """
    x, cos, sin = tensor(x), tensor(cos), tensor(sin)
    width = call.get("rotary_embedding_dim", 0)
    size = x.shape[-1] // call.get("num_heads") if width else 2 * cos.shape[-1]
    heads = x if x.dim() == 4 else split(x, x.shape[-1] // size)
    where = tensor(positions).long()
    if where.numel() == 1 and where.dim() == 1:
        where = where + torch.arange(heads.shape[2])[None]
    y = rotated(heads, cos[where], sin[where], bool(call.get("interleaved", 0))) * call.get("scale", 1.0)
    return y if x.dim() == 4 else merged(y)


@operator("RotaryEmbedding", composed=True)
def rotary(call: Call, x: Any, cos: Any, sin: Any, positions: Any = None) -> Any:
    """The same, of the standard. cos, sin: a table by position, or without positions one row for each value, (N, S, pairs)."""
    x, cos, sin = tensor(x), tensor(cos), tensor(sin)
    heads = x if x.dim() == 4 else split(x, call.get("num_heads"))
    if positions is not None:
        where = tensor(positions).long()
        cos, sin = cos[where], sin[where]
    width = call.get("rotary_embedding_dim", 0)
    if width:
        cos, sin = cos[..., : width // 2], sin[..., : width // 2]
    y = rotated(heads, cos, sin, bool(call.get("interleaved", 0)))
    return y if x.dim() == 4 else merged(y)
