"""How near two arrays are to each other, in any order of their axes, in another precision, and up to a factor."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from .canonical import Array

MOST_AXES = 5  # arrays with more axes longer than 1 are compared in their own order
TIES = 0.98  # share of the values of a rounded array that are the nearest ones; folding in float32 may move values beside a tie
SAMPLE = 4096  # values by which an order of axes is rejected early


@dataclass(frozen=True)
class Fit:
    """away: relative difference (rms). order: of the reference's axes that are longer than 1; None: as they are."""

    away: float
    order: tuple[int, ...] | None


def fit_of(array: Array, reference: Array, enough: float = 0.0) -> Fit | None:
    """The order of axes in which an array is nearest to another one; None when no order has its shape.

    enough: a difference with which no further order is tried; an array in its own order is tried first.
    """
    mine, theirs = (each.reshape([size for size in each.shape if size > 1]) for each in (array, reference))
    best = None
    for order in _orders(theirs.ndim):
        if tuple(theirs.shape[axis] for axis in order) != mine.shape:
            continue
        away = distance(mine, theirs.transpose(order))
        if best is None or away < best.away:
            best = Fit(away, None if order == tuple(range(theirs.ndim)) else order)
        if best.away <= enough:
            break
    return best


def _orders(rank: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(rank))) if rank <= MOST_AXES else [tuple(range(rank))]


def distance(array: Array, reference: Array) -> float:
    """rms of the difference / rms of the reference; infinite for another shape."""
    if array.shape != reference.shape:
        return math.inf
    step = max(1, len(array) // max(1, SAMPLE * len(array) // max(1, array.size))) if array.ndim else 1
    if step > 1:
        part = _distance(array[::step], reference[::step])
        if part > 1.0:
            return part
    return _distance(array, reference)


def _distance(array: Array, reference: Array) -> float:
    size = float(np.square(reference, dtype=np.float64).sum())
    delta = np.subtract(array, reference, dtype=np.float64)
    away = float(np.square(delta, out=delta).sum())
    return math.sqrt(away / size) if size else (0.0 if not away else math.inf)


def rounded_to(array: Array, reference: Array) -> str:
    """The lower precision to which the values of a reference are rounded in an array; "" when they are not."""
    single, values = (each.astype(np.float32, copy=False) for each in (reference, array))
    if np.array_equal(values, single) or not np.isfinite(values).all():
        return ""
    with np.errstate(over="ignore"):
        if _mostly(values, single.astype(np.float16).astype(np.float32), single, 2.0**-10):
            return "float16"
    if not (values.view(np.uint32) & 0xFFFF).any() and _mostly(values, values, single, 2.0**-8):
        return "bfloat16"
    return ""


def _mostly(values: Array, expected: Array, single: Array, step: float) -> bool:
    """Whether nearly all values are as expected, and the others within one step: beside a tie a value may fall the other way."""
    small = step * np.maximum(np.abs(single), 2.0**-14)
    return float((values == expected).mean()) >= TIES and bool((np.abs(values - single) <= small).all())


def scaled_by(array: Array, reference: Array) -> float:
    """The factor with which a reference is nearest to an array."""
    size = float(np.square(reference, dtype=np.float64).sum())
    return float(np.multiply(reference, array, dtype=np.float64).sum()) / size if size else 0.0
