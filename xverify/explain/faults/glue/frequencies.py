"""Faults of frequencies that a constructor computes, for tables of sines and cosines: another number of steps between them.

Where the glue code itself computes them, ``arithmetic`` changes the numbers that it divides by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ....replay.operation import Compute, Operation
from .operation import Change, with_arguments


def frequencies(operation: Operation) -> Iterator[Change]:
    """The same first frequency, and another last one, in a table that this operation is given."""
    tables = [source.tensor for source in operation.sources if source.maker is None and is_geometric(source.tensor)]
    if len(tables) != 1:
        return
    count = tables[0].numel()
    for mine, theirs in ((count, count - 1), (count - 1, count)):
        yield Change(
            "number of steps",
            f"divides by {mine} in the exponents of a table of {count} frequencies, where the reference divides by {theirs}",
            _with_frequencies(operation, theirs / mine),
        )


def is_geometric(x: Tensor) -> bool:
    """Whether a tensor has at least three values along one axis, each of which is the same multiple of the one before."""
    if not x.is_floating_point() or max(x.shape, default=0) != x.numel() or x.numel() < 3:
        return False
    values = x.flatten().double()
    if not bool((values > 0).all()):
        return False
    ratios = values[1:] / values[:-1]
    return bool(ratios[0] != 1) and torch.allclose(ratios, ratios[:1], rtol=1e-6, atol=0.0)


def _with_frequencies(operation: Operation, factor: float) -> Compute:
    """The operation with the exponents of its table multiplied by a factor."""

    def changed(value: Any) -> Any:
        if not isinstance(value, Tensor) or not is_geometric(value):
            return value
        first = value.flatten()[0]
        return first * (value / first) ** factor

    return with_arguments(operation, changed)
