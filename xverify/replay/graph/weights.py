"""Compares the weights of a file in lower precision with those of a reference, value by value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...verdict.limits import UNIT
from .model import Graph
from .values import UNITS, is_float

# A correct conversion rounds to the nearest number, or cuts off. Both are within two units of roundoff.
ROUNDINGS = 2.02
# Distance between the smallest numbers of a type, twice: converters replace numbers that are too small by the smallest one.
SMALLEST = {np.dtype(np.float16): 2.0**-23}


def beyond_rounding(graph: Graph, reference: Graph) -> list[str]:
    """A sentence about each weight with a value that rounding to its type does not explain.

    Weights of the same name and shape are compared, where the graph stores them in a narrower type than float32.
    """
    return [text for name, array in graph.constants.items() for text in _compared(name, array, reference.constants.get(name))]


def _compared(name: str, array: Any, other: Any) -> Iterator[str]:
    if other is None or other.shape != array.shape or not array.size or not (is_float(array) and is_float(other)):
        return
    unit = UNITS[array.dtype]
    if unit <= UNIT or UNITS[other.dtype] >= unit:
        return
    mine, right = array.astype(np.float64), other.astype(np.float64)
    limit = ROUNDINGS * unit * np.abs(right) + SMALLEST.get(array.dtype, 0.0)
    with np.errstate(invalid="ignore"):
        excess = np.abs(mine - right) / limit if np.all(limit > 0) else np.abs(mine - right) / np.maximum(limit, 1e-300)
    wrong = ~(excess <= 1.0)
    if not wrong.any():
        return
    place = np.unravel_index(int(np.argmax(np.where(np.isfinite(excess), excess, np.inf))), array.shape)
    where = "[" + ", ".join(map(str, map(int, place))) + "]" if array.ndim else ""
    yield (
        f"{int(wrong.sum())} of {array.size} values of {name} are not the reference's, rounded to {array.dtype}: "
        f"{name}{where} is {mine[place]:.6g}, and the reference has {right[place]:.6g}"
    )
