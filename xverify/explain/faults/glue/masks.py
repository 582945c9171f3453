"""Faults of masks: inverted, left out, or shifted by one position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ....replay.operation import Keywords, Operation
from .operation import Change, first_argument, with_argument

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
        yield from _with_mask(operation, 1, "mask")
        yield Change("mask missing", "does not apply a mask", first_argument())
    elif name == "where" and operation.argument(2, "other") is not None:
        yield from _with_mask(operation, 0, "condition")
        for place, key, what in ((1, "input", "first"), (2, "other", "second")):
            kept = operation.argument(place, key)
            if isinstance(kept, Tensor) and tuple(kept.shape) == operation.shape:
                yield Change(
                    "mask missing", f"takes the {what} choice everywhere, without its mask", _argument(place, key)
                )
    elif name in ("add", "mul"):
        yield from _arithmetic(operation)


def _argument(place: int, key: str) -> Callable[..., Any]:
    return lambda args, kwargs: args[place] if place < len(args) else kwargs[key]


# -- the values of a mask -----------------------------------------------------------------------------------------------


def is_mask(value: Any) -> bool:
    """Whether a tensor is a mask: truth values, zeros and ones, or zeros and very low numbers."""
    if not isinstance(value, Tensor) or not value.dim() or value.numel() < 2:
        return False
    if value.dtype == torch.bool:
        return True
    if value.is_complex():
        return False
    return bool(((value == 0) | (value == 1)).all()) or is_additive(value)


def is_additive(value: Tensor) -> bool:
    """Whether the values are zeros and very low numbers."""
    if not value.is_floating_point():
        return False
    closed = value <= LOW
    return bool((closed | (value == 0)).all()) and bool(closed.any())


def variants(mask: Tensor) -> Iterator[Variant]:
    """The masks that a port may have instead."""
    yield "mask inverted", "has its mask inverted", inverted
    closed = _ends(mask)
    for step in (1, -1):
        says = f"has its mask shifted by one position {'to the right' if step > 0 else 'to the left'}"
        for edge in (None, *closed):
            yield (
                "mask off by one",
                says,
                lambda mask, step=step, edge=edge: moved(mask, step, edge),
            )
    if mask.dim() > 1 and mask.shape[-1] == mask.shape[-2]:
        yield "mask transposed", "has its mask transposed", lambda mask: mask.transpose(-1, -2)


def _ends(mask: Tensor) -> tuple[float, float]:
    """The two values of a mask."""
    return (float(mask.min()), 0.0) if is_additive(mask) else (0.0, 1.0)


def inverted(mask: Tensor) -> Tensor:
    """The mask with its two values exchanged."""
    if mask.dtype == torch.bool:
        return ~mask
    if is_additive(mask):
        return torch.where(mask <= LOW, 0.0, mask.min())
    return 1 - mask


def moved(mask: Tensor, step: int, edge: float | None) -> Tensor:
    """The mask moved along its last axis. edge: the value of the position that becomes free; None: the one that was there."""
    found = mask.roll(step, -1)
    first = 0 if step > 0 else -1
    found[..., first] = mask[..., first] if edge is None else (bool(edge) if mask.dtype == torch.bool else edge)
    return found


# -- operations ---------------------------------------------------------------------------------------------------------


def _with_mask(operation: Operation, place: int, key: str) -> Iterator[Change]:
    mask = operation.argument(place, key)
    if is_mask(mask):
        for kind, says, change in variants(mask):
            yield Change(kind, says, with_argument(operation, place, key, change))


def _arithmetic(operation: Operation) -> Iterator[Change]:
    for place, key in ((0, "input"), (1, "other")):
        mask = operation.argument(place, key)
        if not is_mask(mask) or is_additive(mask) != (operation.name == "add"):
            continue
        yield from _with_mask(operation, place, key)
        kept = operation.argument(1 - place, "other" if place == 0 else "input")
        if isinstance(kept, Tensor) and tuple(kept.shape) == operation.shape:
            yield Change(
                "mask missing", "does not apply a mask", _argument(1 - place, "other" if place == 0 else "input")
            )


def _triangle(operation: Operation) -> Iterator[Change]:
    name, right = operation.name, operation.argument(1, "diagonal", default=0)
    for diagonal in (right + 1, right - 1):
        yield Change(
            "mask off by one",
            f"has {diagonal} as the diagonal of a triangular mask ({name}); the reference {right}",
            with_argument(operation, 1, "diagonal", diagonal),
        )
    other: Any = torch.triu if name == "tril" else torch.tril
    yield Change(
        "mask transposed",
        f"keeps the {'upper' if name == 'tril' else 'lower'} triangle of a mask; the reference the other one",
        first_argument(lambda x: other(x, -right)),
    )


def _comparison(operation: Operation) -> Iterator[Change]:
    name = operation.name
    left, right = operation.argument(0, "input"), operation.argument(1, "other")

    def computing(other: str) -> Callable[..., Any]:
        function: Any = getattr(torch.Tensor, other)

        def compute(args: tuple[Any, ...], kwargs: Keywords) -> Any:
            return function(args[0], args[1] if len(args) > 1 else kwargs["other"])

        return compute

    if isinstance(left, Tensor) and right is not None:
        told = f"where the reference compares by {SIGNS[name]}"
        if name in COMPARISONS:
            other = COMPARISONS[name]
            yield Change("mask off by one", f"compares by {SIGNS[other]}, {told}", computing(other))
        yield Change("mask inverted", f"compares by {SIGNS[OPPOSITE[name]]}, {told}", computing(OPPOSITE[name]))
