"""GroupQueryAttention, the attention of language models: groups of heads share their keys and values, which a cache keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..values import tensor
from .heads import Attention, causal, split
from .registry import MICROSOFT, Call, operator
from .rotary import rotated

QUANTISED_CACHE = ("k_quant_type", "v_quant_type")


@dataclass(frozen=True)
class Lengths:
    """How many keys every item has.

    total: those of this call included, (N,). new: of this call. longest: of the items. first: whether there are none of earlier
    calls.
    """

    total: Tensor
    new: int
    longest: int

    @property
    def first(self) -> bool:
        return self.new == self.longest

    @property
    def past(self) -> Tensor:
        """Of earlier calls, (N,)."""
        return torch.zeros_like(self.total) if self.first else self.total - self.new

    def positions(self, given: Any) -> Tensor:
        """The position of every new key, (N or 1, new). given: those of the node, of which a first call takes the first only."""
        places = torch.arange(self.new)[None]
        if self.first:
            return places + (0 if given is None else int(given.flat[0]))
        return self.past[:, None] + places if given is None else tensor(given).long()


@operator("GroupQueryAttention", domain=MICROSOFT, composed=True)
def group_query_attention(call: Call, query: Any, *inputs: Any) -> Any:
    """Attention of queries to earlier and present keys. It returns all keys and values, too, (N, heads, T, H)."""
    key, value, past_key, past_value, last, total, cos, sin, positions, bias, sink = (*inputs, *[None] * 11)[:11]
    _check(call, inputs)
    lengths = Lengths(tensor(last).long().view(-1) + 1, query.shape[1], int(total.flat[0]))
    q, k, v = _by_head(call, query, key, value)
    if call.get("do_rotary", 0):
        where = lengths.positions(positions)
        angles = tensor(cos)[where], tensor(sin)[where]
        q, k = (rotated(each, *angles, bool(call.get("rotary_interleaved", 0))) for each in (q, k))
    k, v = (_cached(past, new, lengths) for past, new in ((past_key, k), (past_value, v)))
    keys, visible = lengths.longest, _visible(call, lengths)
    attention = Attention(
        call.get("scale", 0.0),
        call.get("softcap", 0.0),
        () if bias is None else (tensor(bias)[..., :keys],),
        visible,
        _sink(call, sink),
    )
    found = attention(q, k[:, :, :keys], v[:, :, :keys])
    shown = found.scores.masked_fill(~visible, 0.0) if call.get("qk_output", 0) == 1 else found.weights
    return (found.output, k, v, shown)[: len(call.node.outputs)]


def _check(call: Call, inputs: tuple[Any, ...]) -> None:
    """Raise UnsupportedOperator for what has no implementation."""
    if any(call.get(name, b"NONE") not in (b"NONE", "NONE") for name in QUANTISED_CACHE):
        raise call.node.unsupported("has quantised keys and values")
    if call.get("sliding_window_cache", 0):
        raise call.node.unsupported("has a cache of the size of its window")
    if any(each is not None for each in inputs[13:]):
        raise call.node.unsupported("normalizes its queries and keys")


def _visible(call: Call, lengths: Lengths) -> Tensor:
    """Which keys each query sees, (N, 1, new, keys)."""
    present = torch.arange(lengths.longest) < lengths.total.view(-1, 1, 1, 1)
    if not call.get("causal", 1):
        return present.expand(-1, -1, lengths.new, -1)
    window = call.get("local_window_size", -1)
    if window >= 0 and bool((lengths.total < lengths.new).any()):  # ONNX Runtime's own kernels do not agree on these
        raise call.node.unsupported("has a window, and queries of padding behind the last key")
    return present & causal(lengths.new, lengths.longest, lengths.past, window)


def _sink(call: Call, sink: Any) -> Tensor | None:
    if sink is not None:
        return tensor(sink)
    return torch.zeros(call.get("num_heads"), dtype=torch.float64) if call.get("smooth_softmax", -1) == 1 else None


def _by_head(call: Call, query: Any, key: Any, value: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by head, which may be in one array."""
    heads, shared = call.get("num_heads"), call.get("kv_num_heads")
    if key is not None:
        return split(tensor(query), heads), split(tensor(key), shared), split(tensor(value), shared)
    q, k, v = split(tensor(query), heads + 2 * shared).split([heads, shared, shared], 1)
    return q, k, v


def _cached(past: Any, new: Tensor, lengths: Lengths) -> Tensor:
    """Earlier keys or values, behind them the new ones of each item, and zeros in the rest."""
    size = max(lengths.longest, 0 if past is None else past.shape[2])
    made = torch.zeros(*new.shape[:2], size, new.shape[3], dtype=new.dtype)
    for item, before in enumerate(lengths.past.tolist()):
        if before:
            made[item, :, :before] = tensor(past)[item, :, :before]
        made[item, :, before : before + lengths.new] = new[item]
    return made
