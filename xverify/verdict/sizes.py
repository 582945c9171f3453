"""The root mean square of arrays of any scale: squares neither underflow nor overflow."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..weights.canonical import Array

PART = 2**15  # values that are processed at a time: a copy of a large array in float64 may not fit into memory
# Sums of squares outside of these are computed again, of values that are divided by the largest one.
LEAST, MOST = 1e-250, 1e290


def rms(array: Array, minus: Array | None = None) -> float:
    """The root mean square of the finite values of an array, or of the difference of two arrays of one shape.

    minus: what is subtracted. Returns infinity when the two are finite in different places, and 0.0 when no value is finite.
    """
    total, count = 0.0, 0
    for values in _finite(array, minus):
        if values is None:
            return math.inf
        with np.errstate(over="ignore", under="ignore"):
            total += float(np.square(values).sum())
        count += values.size
    if not count:
        return 0.0
    return math.sqrt(total / count) if LEAST < total < MOST else _scaled(array, minus, count)


def norm(array: Array, minus: Array | None = None) -> float:
    """The root of the sum of the squares that ``rms`` takes the mean of."""
    return rms(array, minus) * math.sqrt(np.count_nonzero(np.isfinite(array)))


def _scaled(array: Array, minus: Array | None, count: int) -> float:
    """The same, of values that are divided by the largest one."""
    largest = max(float(np.abs(values).max(initial=0.0)) for values in _finite(array, minus) if values is not None)
    if not largest or math.isinf(largest):
        return largest
    with np.errstate(under="ignore"):
        parts = (values / largest for values in _finite(array, minus) if values is not None)
        return largest * math.sqrt(math.fsum(float(np.square(part).sum()) for part in parts) / count)


def _finite(array: Array, minus: Array | None) -> Iterator[Array | None]:
    """The finite values in float64, a part at a time; None where only one of the two arrays is finite."""
    flat = array.reshape(-1)
    other = None if minus is None else minus.reshape(-1)
    for start in range(0, flat.size, PART):
        values = flat[start : start + PART].astype(np.float64)
        finite = np.isfinite(values)
        if other is None:
            yield values[finite]
            continue
        others = other[start : start + PART].astype(np.float64)
        if not np.array_equal(finite, np.isfinite(others)):
            yield None
            return
        with np.errstate(over="ignore"):
            yield values[finite] - others[finite]
