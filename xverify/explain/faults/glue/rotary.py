"""Faults of rotary position embeddings: which values form a pair, and the direction of the rotation.

Two conventions exist. A pair is a value of the first half and one of the second half of a head (GPT-NeoX, Hugging Face), or two
values that are neighbours (GPT-J, Llama as published). Code of one convention becomes code of the other one when everything that
takes halves takes every second value, when what is concatenated is interleaved, and when the tables are arranged alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....replay.operation import Compute, Operation
from .operation import Change, Rewrite, argument, first_argument, with_arguments, with_result

HALVES = "pairs neighbours in its rotary embedding (interleaved); the reference pairs the two halves"
NEIGHBOURS = "pairs the two halves in its rotary embedding; the reference pairs neighbours (interleaved)"


def rotation(operation: Operation) -> Iterator[Change]:
    """A rotation in the other direction."""
    kind, says = "rotation direction", "rotates its rotary embedding in the other direction"
    if operation.name in ("cat", "stack"):
        makers = [operation.made_by(tensor) for tensor in _pair(operation) or ()]
        if sum(maker is not None and maker.name == "neg" for maker in makers) == 1:
            yield Change(kind, says, with_result(operation, torch.neg))
    elif operation.name == "mul":
        other = operation.argument(1, "other")
        if isinstance(other, Tensor) and other.is_complex():
            yield Change(kind, says, lambda args, kwargs: args[0] * args[1].conj())


def pairing(operations: Sequence[Operation]) -> Iterator[Rewrite]:
    """The other pairing of values, in all rotary embeddings."""
    for says, splits, joins, halves in (
        (HALVES, _half, _concatenated, True),
        (NEIGHBOURS, _neighbour, _interleaved, False),
    ):
        changed, joined, tables = (
            {operation: found for operation in operations if (found := change(operation)) is not None}
            for change in (splits, joins, partial(_table, halves=halves))
        )
        if changed and joined:
            yield Rewrite("RoPE pairing", says, {**tables, **joined, **changed})


def _pair(operation: Operation) -> Sequence[Tensor] | None:
    """The two tensors that an operation joins."""
    tensors = operation.argument(0, "tensors")
    return tensors if isinstance(tensors, (tuple, list)) and len(tensors) == 2 else None


def _along_last(axis: Any, dim: int) -> bool:
    return isinstance(axis, int) and axis % dim == dim - 1


# -- halves that become neighbours --------------------------------------------------------------------------------------


def _half(operation: Operation) -> Compute | None:
    """What takes halves of the last axis takes every second value; what takes half of a table stays as it is."""
    if not operation.sources or _repeats(operation.sources[0].tensor, halves=True):
        return None
    x = operation.sources[0].tensor
    if operation.name in ("chunk", "split", "tensor_split") and len(operation.shapes) == 2:
        size = operation.shapes[0][-1]
        if operation.shapes[0] == operation.shapes[1] and 2 * size == x.shape[-1]:
            return first_argument(lambda x: [x[..., ::2], x[..., 1::2]])
    part = _last_slice(operation)
    if part is not None and part.step in (None, 1):
        start, stop, _ = part.indices(x.shape[-1])
        if stop - start == x.shape[-1] // 2 and start in (0, stop - start):
            return first_argument(lambda x: x[..., bool(start) :: 2])
    return None


def _last_slice(operation: Operation) -> slice | None:
    """The slice of the last axis by which an operation indexes, when it takes all of the other axes."""
    if operation.name != "getitem" or not isinstance(operation.argument(0), Tensor):
        return None
    items = operation.argument(1)
    items = items if isinstance(items, tuple) else (items,)
    if any(isinstance(item, Tensor) for item in items):
        return None
    whole = any(item is Ellipsis for item in items) or len(items) == operation.argument(0).dim()
    plain = all(item is Ellipsis or item == slice(None) for item in items[:-1])
    last = items[-1]
    return last if whole and plain and isinstance(last, slice) else None


def _concatenated(operation: Operation) -> Compute | None:
    """Two tensors that are concatenated along the last axis are interleaved."""
    pair = _pair(operation) if operation.name == "cat" else None
    if pair is None or pair[0].shape != pair[1].shape:
        return None
    if not _along_last(operation.argument(1, "dim", default=0), pair[0].dim()):
        return None
    return argument(0, "tensors", lambda tensors: torch.stack(tuple(tensors), -1).flatten(-2))


# -- neighbours that become halves --------------------------------------------------------------------------------------


def _neighbour(operation: Operation) -> Compute | None:
    """What takes every second value takes halves of the last axis; what takes it of a table stays as it is."""
    if not operation.sources or _repeats(operation.sources[0].tensor, halves=False):
        return None
    x = operation.sources[0].tensor
    part = _last_slice(operation)
    if part is not None and part.step == 2 and part.start in (None, 0, 1):
        half, second = x.shape[-1] // 2, bool(part.start)
        return first_argument(lambda x: x[..., half:] if second else x[..., :half])
    if x.shape[-1] != 2 or x.dim() < 2:
        return None
    if operation.name == "unbind" and len(operation.shapes) == 2 and operation.shapes[0] == tuple(x.shape[:-1]):
        return first_argument(lambda x: list(x.flatten(-2).chunk(2, -1)))
    if operation.name == "view_as_complex":
        return first_argument(lambda x: torch.complex(*x.flatten(-2).chunk(2, -1)))
    items = operation.argument(1) if operation.name == "getitem" else None
    if isinstance(items, tuple) and items[:1] == (Ellipsis,) and items[1:] in ((0,), (1,)):
        return first_argument(lambda x: x.flatten(-2).chunk(2, -1)[items[1]])
    return None


def _interleaved(operation: Operation) -> Compute | None:
    """Two tensors that are interleaved along the last axis are concatenated."""
    name, shape = operation.name, operation.shape
    if name == "view_as_real":
        return first_argument(lambda z: torch.cat([z.real, z.imag], -1).reshape(shape))
    axis = operation.argument(1, "dim", default=0) if name == "stack" else operation.argument(2, "dim")
    if name not in ("stack", "repeat_interleave") or not _along_last(axis, len(shape)):
        return None
    if name == "stack":
        joined = argument(0, "tensors", lambda tensors: torch.cat(tuple(tensors), -1).reshape(shape))
        return joined if _pair(operation) is not None else None
    return first_argument(lambda x: torch.cat([x, x], -1)) if operation.argument(1, "repeats") == 2 else None


# -- the tables of cosines and sines ------------------------------------------------------------------------------------


def _table(operation: Operation, halves: bool) -> Compute | None:
    """A product with a table whose halves, or neighbours, are the same: the table is arranged for the other pairing."""
    if operation.name != "mul" or not any(_repeats(source.tensor, halves) for source in operation.sources):
        return None

    def arranged(value: Any) -> Any:
        if not isinstance(value, Tensor) or not _repeats(value, halves):
            return value
        half = value.shape[-1] // 2
        return value[..., :half].repeat_interleave(2, -1) if halves else torch.cat([value[..., ::2]] * 2, -1)

    return with_arguments(operation, arranged)


def _repeats(value: Tensor, halves: bool) -> bool:
    """Whether the halves, or the neighbours, along the last axis are the same, and not all values are."""
    if not value.is_floating_point() or value.dim() < 2 or value.shape[-1] < 4 or value.shape[-1] % 2:
        return False
    half = value.shape[-1] // 2
    same_halves = torch.equal(value[..., :half], value[..., half:])
    same_neighbours = torch.equal(value[..., ::2], value[..., 1::2])
    return same_halves != same_neighbours and same_halves == halves
