"""The noise of a tensor as a table, by which what was measured on some items holds for others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..weights.canonical import Array
from .limits import UNDETERMINED
from .local import DECADES, FEW, Rows, exponent, exponents, step_of
from .sizes import rms

PRIOR = 8  # values of its decade that count beside those of an entry of a table, which may be one


@dataclass(frozen=True)
class Table:
    """The noise of a tensor as a share of its size, for values of each decade and each index of one axis.

    By it the noise that was measured on some items, or in another call, holds for others.

    squares: mean squared noise / mean square of the tensor, (decades, indices).
    base: the first decade, of values / rms of the tensor.
    """

    squares: Array
    base: int

    @classmethod
    def of(cls, exact: Array, noise: Callable[[Array], Array], axis: int, most: int) -> Table:
        """Measure a table.

        exact: the exact values. noise: places in the flat array -> squared noise there. axis: the axis of its own rows.
        most: the number of values that are enough.
        """
        step = step_of(exact.shape, most)
        values = exact.reshape(-1)[::step].astype(np.float64, copy=False)
        places = np.arange(values.size) * step
        size, squares = rms(values), noise(places)
        relative = _scaled(values, size)
        decades = Rows.from_exponents(exponents(relative)).decades
        base, rows = int(decades[0]), int(decades[-1] - decades[0]) + 1
        columns = exact.shape[axis] if exact.ndim else 1
        keys = cls._keys(relative, places, exact.shape, axis, base, rows)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            shares = squares / size / size if size else squares * 0.0
        low = 10.0 ** np.clip(DECADES[exponent(relative)], base, 300).astype(np.float64)
        known = np.isfinite(shares) & (shares <= (UNDETERMINED * np.maximum(np.abs(relative), low)) ** 2)
        numbers = np.bincount(keys[known], minlength=rows * columns).reshape(rows, columns)
        sums = np.bincount(keys[known], shares[known], minlength=rows * columns).reshape(rows, columns)
        vague = np.bincount(keys[~known] // columns, minlength=rows)
        return cls(_filled(sums, numbers, vague), base)

    @staticmethod
    def _keys(relative: Array, places: Array, shape: Sequence[int], axis: int, base: int, rows: int) -> Array:
        length, stride = (shape[axis], math.prod(shape[axis + 1 :])) if shape else (1, 1)
        decades = np.clip(DECADES[exponent(relative)] - base, 0, rows - 1)
        keys: Array = decades * length + places // stride % length
        return keys

    def noise(self, values: Array, places: Array, shape: Sequence[int], axis: int, size: float) -> Array:
        """The squared noise of some values. places: in the flat array of this shape. size: rms of the whole tensor."""
        table = self.squares
        columns = shape[axis] if shape else 1
        if table.shape[1] != columns:
            table = np.broadcast_to(table.mean(axis=1, keepdims=True), (len(table), columns))
        keys = self._keys(_scaled(values, size), places, shape, axis, self.base, len(table))
        found: Array = np.ascontiguousarray(table).reshape(-1)[keys] * size * size
        return found


def stands_for_others(exact: Array, noise: Array) -> bool:
    """Whether the noise of these values may be that of other items: all have noise, and nearly all a significant digit.

    Where a sigmoid is saturated, for example, an item of nothing but exact zeros says nothing about one with small values.
    """
    return bool(np.all(noise > 0)) and not is_vague(exact, noise)


def is_vague(exact: Array, noise: Array) -> bool:
    """Whether more than a few values have no significant digit."""
    with np.errstate(invalid="ignore"):
        vague = ~(noise <= UNDETERMINED * np.abs(exact))
    return vague.size > 0 and float(vague.mean()) > FEW


def spread(exact: Array, measured: Array, noise: Array) -> Array:
    """The noise of every value of a tensor, as it was measured on some of its items.

    exact: the tensor. measured, noise: the exact values and their noise, of the first items.
    """
    if exact.dtype.kind != "f" or not exact.size or not measured.size:
        return np.zeros(exact.shape)
    axis, flat = min(1, exact.ndim - 1), noise.reshape(-1)
    table = Table.of(measured, lambda places: np.square(flat[places].astype(np.float64)), axis, measured.size)
    values = exact.reshape(-1)
    places = np.arange(exact.size)
    squares = table.noise(values, places, exact.shape, axis, rms(exact))
    return np.sqrt(squares).reshape(exact.shape)


def _scaled(values: Array, size: float) -> Array:
    return values / size if size else values


def _filled(sums: Array, counts: Array, vague: Array) -> Array:
    """The means of a table, each together with PRIOR values of the mean of its decade, or of the nearest decade that has values.

    vague: the number of values of each decade without a significant digit. Where most have none, the noise is infinite.
    """
    decade = counts.sum(axis=1)
    means = np.divide(sums.sum(axis=1), decade, out=np.full(len(decade), np.inf), where=decade > vague)
    some = np.flatnonzero(decade + vague)
    if some.size:
        means = means[some[np.abs(np.arange(len(decade))[:, None] - some[None]).argmin(axis=1)]]
    found: Array = (sums + PRIOR * means[:, None]) / (counts + PRIOR)
    return found
