"""Faults of masks: inverted, left out, or shifted by one position."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....replay.operation import Operation
from .arithmetic import NAMES, ORDINALS
from .operation import Change, argument, first_argument, with_argument

LOW = -1e3  # a number that is added and not larger than this closes a position
COMPARISONS = {"ge": "gt", "gt": "ge", "le": "lt", "lt": "le"}
OPPOSITE = {"ge": "lt", "gt": "le", "le": "gt", "lt": "ge", "eq": "ne", "ne": "eq"}
SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "eq": "==", "ne": "!="}

Variant = tuple[str, str, Callable[..., Tensor]]  # kind, clause, the other mask


def masks(operation: Operation) -> Iterator[Change]:
    """All faults of masks that this operation may have."""
    name = operation.name
    if name in ("tril", "triu"):
        yield from _triangle(operation)
    elif name in OPPOSITE:
        yield from _comparison(operation)
    elif name == "logical_not":
        yield Change("mask inverted", "has its mask inverted", first_argument())
    elif name == "masked_fill":
        yield from with_mask(operation, 1, "mask")
        yield Change("mask missing", "does not apply a mask", first_argument())
    elif name == "where" and operation.argument(2, "other") is not None:
        yield from with_mask(operation, 0, "condition")
        for place, key, what in zip((1, 2), NAMES, ORDINALS):
            if _is_whole(operation, place, key):
                says = f"takes the {what} choice everywhere, without its mask"
                yield Change("mask missing", says, argument(place, key))
    elif name in ("add", "mul"):
        yield from _arithmetic(operation)
    elif name in ("or", "and", "logical_or", "logical_and", "bitwise_or", "bitwise_and"):
        for place, what in enumerate(ORDINALS):
            if _is_whole(operation, 1 - place, NAMES[1 - place]):
                says = f"leaves out the {what} condition of two that the reference joins by {name.rpartition('_')[2]}"
                yield Change("condition missing", says, argument(1 - place, NAMES[1 - place]))
    elif name == "div":
        yield from _masked_mean(operation)


def _is_whole(operation: Operation, place: int, key: str) -> bool:
    """Whether an argument has the shape of the result."""
    kept = operation.argument(place, key)
    return isinstance(kept, Tensor) and tuple(kept.shape) == operation.shape


# -- the values of a mask -----------------------------------------------------------------------------------------------


def is_mask(value: Any) -> bool:
    """Whether a tensor is a mask: truth values, zeros and ones, or zeros and very low numbers."""
    if not isinstance(value, Tensor) or not value.dim() or value.numel() < 2:
        return False
    if value.dtype == torch.bool:
        return True
    return not value.is_complex() and (bool(((value == 0) | (value == 1)).all()) or is_additive(value))


def is_additive(value: Tensor) -> bool:
    """Whether the values are zeros and very low numbers."""
    if not value.is_floating_point():
        return False
    closed = value <= LOW
    return bool((closed | (value == 0)).all()) and bool(closed.any())


def variants(mask: Tensor) -> Iterator[Variant]:
    """The masks that a port may have instead."""
    yield "mask inverted", "has its mask inverted", inverted
    ends = (float(mask.min()), 0.0) if is_additive(mask) else (0.0, 1.0)
    for step, side in ((1, "right"), (-1, "left")):
        for edge in (None, *ends):
            says = f"has its mask shifted by one position to the {side}"
            yield "mask off by one", says, partial(moved, step=step, edge=edge)
    if mask.dim() > 1 and mask.shape[-1] == mask.shape[-2]:
        yield "mask transposed", "has its mask transposed", lambda mask: mask.transpose(-1, -2)


def inverted(mask: Tensor) -> Tensor:
    """The mask with its two values exchanged."""
    if mask.dtype == torch.bool:
        return ~mask
    return torch.where(mask <= LOW, 0.0, mask.min()) if is_additive(mask) else 1 - mask


def moved(mask: Tensor, step: int, edge: float | None) -> Tensor:
    """The mask moved along its last axis. edge: the value of the position that becomes free; None: the one that was there."""
    found = mask.roll(step, -1)
    first = 0 if step > 0 else -1
    found[..., first] = mask[..., first] if edge is None else (bool(edge) if mask.dtype == torch.bool else edge)
    return found


# -- operations ---------------------------------------------------------------------------------------------------------


def with_mask(operation: Operation, place: int, key: str) -> Iterator[Change]:
    """The variants of the mask that is this argument."""
    mask = operation.argument(place, key)
    for kind, says, change in variants(mask) if is_mask(mask) else ():
        yield Change(kind, says, with_argument(operation, place, key, change))


def _arithmetic(operation: Operation) -> Iterator[Change]:
    for place, key in enumerate(NAMES):
        mask, other = operation.argument(place, key), (1 - place, NAMES[1 - place])
        alone = not isinstance(operation.argument(*other), Tensor)  # a number is not masked
        if is_mask(mask) and is_additive(mask) == (operation.name == "add") and not alone:
            yield from with_mask(operation, place, key)
            if _is_whole(operation, *other):
                yield Change("mask missing", "does not apply a mask", argument(*other))


def _masked_mean(operation: Operation) -> Iterator[Change]:
    """A mean over all positions, where the reference divides a sum over the open positions of a mask by their number."""
    total = operation.made_by(operation.argument(0, "input"))
    if total is None or total.name != "sum" or not total.sources:
        return
    axes, keep = total.argument(1, "dim", "axis"), total.argument(2, "keepdim", default=False)
    product = total.sources[0].maker
    if product is not None and product.name == "mul" and len(product.sources) == 2:
        for mask, values in itertools.permutations(product.sources):
            if is_mask(mask.tensor):
                says = "averages over all positions, where the reference averages over the open ones of a mask"
                yield Change("mask missing", says, lambda *_, values=values: values.value().mean(axes, keep))
    summed = total.sources[0]
    says = (
        "divides a sum over a mask by the number of all positions, where the reference divides by that of the open ones"
    )
    yield Change("mask missing", says, lambda *_: summed.value().mean(axes, keep))


def _triangle(operation: Operation) -> Iterator[Change]:
    name, right = operation.name, operation.argument(1, "diagonal", default=0)
    for diagonal in dict.fromkeys((right + 1, right - 1, 0)):
        if diagonal == right:
            continue
        says = f"has {diagonal} as the diagonal of a triangular mask ({name}); the reference {right}"
        yield Change("mask off by one", says, with_argument(operation, 1, "diagonal", diagonal))
    mine, other = ("upper", torch.triu) if name == "tril" else ("lower", torch.tril)
    says = f"keeps the {mine} triangle of a mask; the reference the other one"
    yield Change("mask transposed", says, first_argument(lambda x: other(x, -right)))


def _comparison(operation: Operation) -> Iterator[Change]:
    name, left, right = operation.name, operation.argument(0, "input"), operation.argument(1, "other")
    if not isinstance(left, Tensor) or not left.dim() or right is None:
        return

    whole = not any(
        value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, float) for value in operation.args
    )

    def compared(kind: str, by: str) -> Change:
        says = f"compares by {SIGNS[by]}, where the reference compares by {SIGNS[name]}"
        other: Any = getattr(torch.Tensor, by)
        return Change(kind, says, lambda args, kwargs: other(args[0], args[1] if len(args) > 1 else kwargs["other"]))

    if name in COMPARISONS:
        change = compared("mask off by one", COMPARISONS[name])
        # Of whole numbers, a < b + 1 is a <= b.
        yield replace(change, says=f"{change.says}, or one of the two numbers is off by one") if whole else change
    yield compared("mask inverted", OPPOSITE[name])
