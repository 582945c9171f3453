"""When a quantised value is right: it is at most half a step of its block from the reference's.

Where the reference's value lies beyond the range of the block, the end of the range is right, up to a distance that depends on the
type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from .canonical import Array, Streamed, shape_of
from .levels import FLOATS, LEVELS, half_gaps
from .stored import STEPS

SINGLE = 2.0**-23  # relative error of a value in float32
SPARE = 0.02  # share of the values that a mistake need not explain


class WithSteps(Streamed):
    """Arrays, and under names of their own the steps of those that are quantised.

    arrays: the arrays. stepped: names of the quantised ones. steps: function of such a name, see ``values``.
    """

    def __init__(self, arrays: Mapping[str, Array], stepped: tuple[str, ...], steps: Callable[[str], Array]) -> None:
        self.arrays, self.steps = arrays, steps
        self.stepped = {STEPS + name: name for name in stepped}
        self.names = {**dict.fromkeys(arrays), **self.stepped}

    def __getitem__(self, name: str) -> Array:
        return self.steps(self.stepped[name]) if name in self.stepped else self.arrays[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self[name].shape if name in self.stepped else shape_of(self.arrays, name)

    def dtype(self, name: str) -> np.dtype[np.float32]:
        return np.dtype(np.float32)


@dataclass(frozen=True)
class Values:
    """Values of an array, and how far each may be from the number that it stands for. All have the shape of ``array``, float64.

    half: the greatest distance within the range. low, high: the ends of the range. beyond: how far outside of it a number may be.
    step: the distance of two neighbours; 0 where the values are not quantised.
    spare: share of values that may be outside where a supposed mistake is undone; see ``language_causes``.
    """

    array: Array
    half: Array
    low: Array
    high: Array
    beyond: Array
    step: Array
    spare: float = SPARE

    def plus(self, number: float) -> Values:
        """The values with a number added."""
        return replace(
            self,
            array=self.array + number,
            half=self.half + SINGLE,
            low=self.low + number,
            high=self.high + number,
        )

    def times(self, number: float) -> Values:
        """The values, which stand for numbers that are multiplied by a number."""
        low, high = (self.low, self.high) if number > 0 else (self.high, self.low)
        size = abs(number)
        return replace(
            self,
            array=number * self.array,
            half=size * self.half,
            low=number * low,
            high=number * high,
            beyond=size * self.beyond,
            step=size * self.step,
        )

    def columns(self, order: Array) -> Values:
        """The same values with their columns in another order."""
        fields = ("array", "half", "low", "high", "beyond", "step")
        return replace(self, **{name: getattr(self, name)[:, order] for name in fields})

    def like(self, numbers: Array) -> Values:
        """The same distances around other numbers of the same blocks."""
        return replace(self, array=numbers)


def values(array: Array, steps: Array | None, kind: str = "") -> Values:
    """The values of rows of an array.

    array: (rows, columns). steps: (5, rows, blocks): half, low, high, beyond and step of each block of a row; None for an array
        that is not quantised. In types of levels.py, half is what is added to half the distance of neighbours; in floats, a
        multiple of the value.
    kind: the type of the array, e.g. "F16".
    """
    array = array.astype(np.float64)
    if steps is None:
        none, end = np.zeros_like(array), np.full_like(array, np.inf)
        return Values(array, none + _half_unit(array, kind), -end, end, none, none)
    half, low, high, beyond, step = np.repeat(steps.astype(np.float64), array.shape[1] // steps.shape[2], axis=2)
    if kind in LEVELS:
        half = half * (np.abs(array) if kind in FLOATS else 1.0) + half_gaps(kind, array, low, high)
    return Values(array, half, low, high, beyond, step)


def _half_unit(array: Array, kind: str) -> Array:
    """Half a unit in the last place of every value of a type with fewer digits than float32."""
    digits = {"F16": 11, "BF16": 8}.get(kind)
    if digits is None:
        return np.zeros_like(array)
    _, exponent = np.frexp(array)
    exponent = np.maximum(exponent, -13 if kind == "F16" else -125)
    return np.ldexp(1.0, exponent - digits - 1)


def outside(mine: Values, theirs: Values) -> Array:
    """Which values are farther from each other than the steps of both allow."""
    allowed = mine.half + theirs.half
    near = np.clip(theirs.array, mine.low, mine.high)
    back = np.clip(mine.array, theirs.low, theirs.high)
    beyond = np.where(near != theirs.array, mine.beyond, 0.0) + np.where(back != mine.array, theirs.beyond, 0.0)
    return np.abs(mine.array - theirs.array) > allowed + beyond
