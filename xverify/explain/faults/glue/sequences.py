"""Faults of positions and grids, and of the largest values: where a sequence starts and ends, its direction, how many are taken."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....replay.operation import Keywords, Operation
from .operation import Change, others, with_argument, with_result

MOST_TAKEN = 8  # numbers of largest values that are tried


def sequences(operation: Operation) -> Iterator[Change]:
    """All faults of sequences that this operation may have."""
    name = operation.name
    if name in ("arange", "range"):
        yield from _positions(operation)
    elif name == "linspace":
        yield from _grid(operation)
    elif name == "topk":
        yield from _largest(operation)
    elif name in ("sort", "argsort"):
        right = bool(operation.kwargs.get("descending", operation.argument(2, default=False)))
        words = ("descending", "ascending")
        says = f"sorts in {words[right]} order; the reference in {words[not right]} order"
        yield Change("sort order", says, lambda args, kwargs: _sorted(operation, args, kwargs, not right))


def reverse(operation: Operation) -> Iterator[Change]:
    """Positions in the reverse order. It is tried last: it may be the same as a difference of positions with the other sign."""
    if operation.name == "arange":
        reverse = with_result(operation, lambda y: y.flip(-1))
        yield Change("direction", "counts its positions in the reverse order", reverse)


def _sorted(operation: Operation, args: tuple[Any, ...], kwargs: Keywords, descending: bool) -> Any:
    return operation.function(*args[:2], **{**kwargs, "descending": descending})


def _positions(operation: Operation) -> Iterator[Change]:
    """Positions that start one step later or earlier, or half a step, or run backwards."""
    numbers = [value for value in operation.args if isinstance(value, (int, float))]
    step = numbers[2] if len(numbers) == 3 else 1
    start = operation.kwargs.get("start", numbers[0] if len(numbers) > 1 else 0)
    for shift in (step, -step):
        says = f"has positions that start at {start + shift:g}; the reference's start at {start:g}"
        group = f"has positions that are {abs(shift):g} {'higher' if shift > 0 else 'lower'}: they start elsewhere"
        yield Change("position", says, with_result(operation, lambda y, shift=shift: y + shift), group)
    for shift in (step / 2, -step / 2):
        what = (
            "later, such as the centres of cells for their corners"
            if shift > 0
            else "earlier, such as corners for centres"
        )
        says = f"has positions that are half a step {what}"
        yield Change("half a step", says, with_result(operation, lambda y, shift=shift: y + shift))


def _grid(operation: Operation) -> Iterator[Change]:
    """An evenly spaced grid without its end, with the centres of cells, or in the other direction."""
    start, end = operation.argument(0, "start"), operation.argument(1, "end")
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        return

    def spaced(offset: float, y: Tensor) -> Tensor:
        return start + (end - start) * (torch.arange(y.numel(), dtype=y.dtype) + offset) / y.numel()

    span = f"from {start:g} to {end:g}"
    for offset, kind, says in (
        (0.0, "end of a grid", f"leaves out the end of its grid {span} (linspace)"),
        (0.5, "half a step", f"takes the centres of cells {span}, where the reference's grid has both ends (linspace)"),
        (1.0, "end of a grid", f"leaves out the start of its grid {span} (linspace)"),
    ):
        yield Change(kind, says, with_result(operation, partial(spaced, offset)))
    yield Change("direction", f"has its grid {span} in the reverse order", with_result(operation, lambda y: y.flip(0)))


def _largest(operation: Operation) -> Iterator[Change]:
    """Another number of the largest values, the smallest ones, and shares that are divided by their sum."""
    x, right = operation.argument(0, "input"), operation.argument(1, "k")
    axis, largest = operation.argument(2, "dim", default=-1), bool(operation.argument(3, "largest", default=True))
    word, other = ("largest", "smallest") if largest else ("smallest", "largest")
    says = f"takes the {{}} {word} values (topk); the reference {right}"
    counts = range(1, min(MOST_TAKEN, x.shape[axis]) + 1)
    yield from others("number of largest", says, counts, right, partial(with_argument, operation, 1, "k"))
    says = f"takes the {other} values (topk); the reference the {word}"
    yield Change("smallest for largest", says, with_argument(operation, 3, "largest", not largest))
    says = f"has the {word} values in the reverse order"
    yield Change("direction", says, with_result(operation, lambda y: (y[0].flip(axis), y[1])))
    yield Change(
        "renormalised", f"divides the {word} values by their sum; the reference does not",
        with_result(operation, lambda y: (y[0] / y[0].sum(axis, keepdim=True), y[1])),
    )  # fmt: skip
    yield Change(
        "renormalised", f"takes a softmax of the {word} values; the reference does not",
        with_result(operation, lambda y: (y[0].softmax(axis), y[1])),
    )  # fmt: skip
