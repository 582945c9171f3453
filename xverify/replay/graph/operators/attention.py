"""The operators of attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..values import tensor
from .heads import Attended, Attention, causal, split
from .registry import MICROSOFT, Call, operator

HIDDEN = -10000.0  # what is added to the scores of a masked key


def _optional(x: Any) -> Tensor | None:
    return None if x is None else tensor(x)


def _joined(past: Any, new: Tensor) -> Tensor:
    """Keys or values of earlier calls before those of this one."""
    return new if past is None else torch.cat([tensor(past), new], 2)


def _returned(call: Call, attended: Attended, *more: Any) -> Any:
    """The outputs of the node: its result, and those of the others that it has."""
    return (attended.output, *more)[: len(call.node.outputs)]


# -- ONNX Runtime's operators -------------------------------------------------------------------------------------------


def _mask(call: Call, mask: Any, count: int, queries: int, keys: int) -> tuple[Tensor, ...]:
    """What a mask adds to the scores, in each of the forms in which ONNX Runtime takes one.

    mask: which keys count, (N, T), (N, S, T) or (N, 1, M, M); or the number of keys of each item, (N,), with the first one of
        each behind it, (2N,), or with running sums, (3N + 2,). count: N. queries: S. keys: T.
    """
    if mask is None:
        return ()
    mask = tensor(mask).long()
    if mask.dim() == 1:
        places = torch.arange(keys)
        seen = places < mask[:count, None]
        if len(mask) == 2 * count:
            seen = seen & (places >= mask[count:, None])
        seen = seen[:, None, None]
    else:
        seen = {2: mask[:, None, None], 3: mask[:, None], 4: mask[..., keys - queries : keys, :keys]}[mask.dim()] > 0
    if seen.shape[-1] != keys:
        raise call.node.unsupported(f"has a mask of {seen.shape[-1]} keys, and {keys} keys")
    return (torch.where(seen, 0.0, call.get("mask_filter_value", HIDDEN)),)


def _attend(
    call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Any, past: int, causal_mask: bool
) -> Attended:
    """The attention of the operators with a mask that is added. past: number of keys before those of this call."""
    queries, keys = q.shape[2], k.shape[2]
    added = _mask(call, mask, len(q), queries, keys)
    added += () if bias is None else (tensor(bias),)
    if causal_mask and keys != past + queries:  # runtimes do not agree on what a query may see there
        raise call.node.unsupported(f"is causal, with {queries} queries and {keys - past} keys")
    visible = causal(queries, keys, past) if causal_mask else None
    added = tuple(each.to(q) for each in added)
    return Attention(call.get("scale", 0.0), added=added, visible=visible)(q, k, v)


@operator("MultiHeadAttention", domain=MICROSOFT, composed=True)
def multi_head_attention(
    call: Call,
    query: Any,
    key: Any = None,
    value: Any = None,
    bias: Any = None,
    mask: Any = None,
    attention_bias: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    past_length: Any = None,
    *more: Any,
) -> Any:
    """Attention of queries to keys and values. It returns the keys and values, too, with those of earlier calls."""
    if past_length is not None or any(each is not None for each in more):
        raise call.node.unsupported("has keys and values in a buffer that it overwrites")
    count = call.get("num_heads")
    q, k, v = _by_head(call, *map(_optional, (query, key, value)))
    if bias is not None:
        sizes = [count * each.shape[-1] for each in (q, k, v)]
        parts = tensor(bias).split(sizes)
        q, k, v = (each + part.view(1, count, 1, -1) for each, part in zip((q, k, v), parts))
    k, v = _joined(past_key, k), _joined(past_value, v)
    past = 0 if past_key is None else past_key.shape[2]
    found = _attend(call, q, k, v, mask, attention_bias, past, bool(call.get("unidirectional", 0)))
    return _returned(call, found, k, v, found.weights)


def _by_head(call: Call, query: Tensor, key: Tensor | None, value: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by head. They may be in one array, (N, S, heads, 3, H), or keys and values, (N, S, heads, 2, H)."""
    count = call.get("num_heads")
    if query.dim() == 5:
        q, k, v = query.permute(3, 0, 2, 1, 4)
        return q, k, v
    q = split(query, count)
    if key is not None and key.dim() == 5:
        k, v = key.permute(3, 0, 2, 1, 4)
        return q, k, v
    if key is None or value is None:
        raise call.node.unsupported("has no keys or no values")
    return q, *(each if each.dim() == 4 else split(each, count) for each in (key, value))


@operator("Attention", domain=MICROSOFT, composed=True)
def attention_of_runtime(
    call: Call,
    x: Any,
    weights: Any,
    bias: Any = None,
    mask: Any = None,
    past: Any = None,
    attention_bias: Any = None,
    past_length: Any = None,
) -> Any:
    """Attention with the projections of queries, keys and values in it. It returns keys and values, too, (2, N, heads, T, H)."""
    if past_length is not None or call.get("do_rotary", 0):
        raise call.node.unsupported("has rotary embeddings, or keys and values in a buffer that it overwrites")
    count, joined = call.get("num_heads"), torch.matmul(tensor(x), tensor(weights))
    joined = joined if bias is None else joined + tensor(bias)
    sizes = call.get("qkv_hidden_sizes") or [joined.shape[-1] // 3] * 3
    q, k, v = (split(each, count) for each in joined.split(list(sizes), -1))
    before = 0
    if past is not None:
        k, v, before = _joined(past[0], k), _joined(past[1], v), past.shape[3]
    found = _attend(call, q, k, v, mask, attention_bias, before, bool(call.get("unidirectional", 0)))
    return _returned(call, found, torch.stack([k, v]) if len(call.node.outputs) > 1 else None)
