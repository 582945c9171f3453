"""Ratios of residual and noise floor in groups of values, so that a few large values cannot hide all others.

The groups are the decades of size of the exact values, and within a decade the values of one item, of one index of axis 1, and of
one index of the last axis. One rms over a whole tensor is that of its largest values: beside a class that is masked with -1e9,
every other class could have the opposite sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..weights.canonical import Array
from .limits import LIFT, TYPICAL, UNDETERMINED, UNIT, mean_with_doubt
from .sizes import rms

LEAST_GROUP = 8  # values of one item or one index within a decade
LEAST_DECADE = 4  # values of a decade; see ``limits.LEAST_VALUES``
LOWEST = (
    3  # decades below the median's, which hold all smaller values, too: zero crossings have no decades of their own
)
PART = 2**14  # values that are processed at a time
EXPONENTS, BIAS = 2**11, 1023  # of a float64
DECADES = np.floor((np.arange(EXPONENTS) - BIAS) * math.log10(2)).astype(np.int64)  # exponent -> decade of its values
PRIOR = 8  # values of its decade that count beside those of an entry of a table, which may be one
TOLD = 8  # undetermined values whose index is kept

# (places of some values in the flat array, these exact values) -> their residuals, and the rms of the noise of each.
Compared = Callable[[Array, Array], tuple[Array, Array]]


@dataclass(frozen=True)
class Local:
    """What the groups of one tensor show.

    ratio: the largest rms of the residual / noise floor of a group.
    whole: the same of all values together.
    floor_share: noise floor / rms of the exact values in the median group: half of the values are in groups that have at most this.
    worst_share: the same in the worst group.
    determined, undetermined: number of values with a significant digit, and without one. The latter are in no group.
    where: the index of each undetermined value, the first TOLD of them.
    """

    ratio: float = 0.0
    whole: float = 0.0
    floor_share: float = 0.0
    worst_share: float = 0.0
    determined: int = 0
    undetermined: int = 0
    where: tuple[tuple[int, ...], ...] = ()

    @property
    def undetermined_share(self) -> float:
        """The share of values without a significant digit."""
        return self.undetermined / max(1, self.determined + self.undetermined)


def local(exact: Array, residual: Array, noise: Array, least_decade: int = LEAST_DECADE) -> Local:
    """Compare a residual with the noise of every value, in groups.

    exact, residual, noise: arrays of one shape. The noise is the rms of every value; infinity or NaN where it is not known. Values
        that are not finite in the first two are in no group.
    least_decade: least number of values of a decade that is a group.
    """
    flat = residual.reshape(-1), noise.reshape(-1)

    def compared(places: Array, _: Array) -> tuple[Array, Array]:
        part = slice(int(places[0]), int(places[-1]) + 1)
        return flat[0][part], flat[1][part]

    return local_of(exact, compared, least_decade)


def local_of(
    exact: Array, compared: Compared, least_decade: int = LEAST_DECADE, most: int | None = None, axis: int | None = None
) -> Local:
    """The same where residual and noise are computed when they are needed.

    compared: see ``Compared``.
    most: the number of values that are enough; of a larger tensor, values at regular distances are taken. None: all.
    axis: an axis whose indices are groups beside those of the items, axis 1 and the last axis.
    """
    if not exact.size:
        return Local()
    step = _step(exact.shape, most)
    flat = exact.reshape(-1)[::step]
    chosen = {0, min(1, exact.ndim - 1), exact.ndim - 1} | ({axis} if axis is not None else set())
    axes = [
        (exact.shape[each], math.prod(exact.shape[each + 1 :]))
        for each in sorted(chosen)
        if 0 <= each < exact.ndim and 1 < exact.shape[each] <= flat.size // LEAST_GROUP
    ]
    groups = _Groups(exponents(flat), axes)
    for start in range(0, flat.size, PART):
        values = flat[start : start + PART].astype(np.float64, copy=False)
        places = np.arange(start, start + values.size) * step
        groups.add(places, values, *(each.astype(np.float64, copy=False) for each in compared(places, values)))
    return groups.summary(least_decade, exact.shape)


def _step(shape: Sequence[int], most: int | None) -> int:
    """The distance of the values that are taken. It shares no factor with a length, so that every index of every axis occurs."""
    size = math.prod(shape)
    step = 1 if most is None else -(-size // most)
    while step > 1 and math.gcd(step, size) > 1:
        step += 1
    return step


def exponent(values: Array) -> Array:
    """The binary exponent of each value as a float64 stores it: 0 of zeros and denormals, the last of infinities and NaN."""
    bits = np.ascontiguousarray(values, np.float64).view(np.int64)
    found: Array = (bits >> 52) & (EXPONENTS - 1)
    return found


def exponents(flat: Array) -> Array:
    """How many values have each exponent."""
    counts = np.zeros(EXPONENTS, np.int64)
    for start in range(0, flat.size, PART):
        counts += np.bincount(exponent(flat[start : start + PART]), minlength=EXPONENTS)
    return counts


def lowest_decade(counts: Array) -> int:
    """The lowest decade that is a group. counts: of the exponents. Zeros do not count, as after a ReLU."""
    finite = np.cumsum(counts[1:-1])
    if not finite[-1]:
        return int(DECADES[0])
    return int(DECADES[1 + np.searchsorted(finite, finite[-1] / 2)]) - LOWEST


class _Groups:
    """Sums of squares by group, each in units of the size of its decade, so that no square over- or underflows.

    counts: of the exponents of the exact values. axes: (length, stride) of each axis whose indices are groups.
    """

    def __init__(self, counts: Array, axes: Sequence[tuple[int, int]]) -> None:
        self.base, self.axes = lowest_decade(counts), axes
        present = np.flatnonzero(counts[:-1])
        top = int(DECADES[present[-1]]) if present.size else self.base
        self.count = max(1, top - self.base + 1)
        self.scale = 10.0 ** -np.clip(np.arange(self.base, self.base + self.count), -300, 300).astype(np.float64)
        self.sums = [np.zeros((4, self.count * length)) for length in (1, *(length for length, _ in axes))]
        self.levels = np.zeros((self.count, EXPONENTS), np.int64)  # of the squared noise of a decade, by exponent
        self.determined = self.undetermined = 0
        self.where: list[int] = []

    def add(self, places: Array, exact: Array, residual: Array, noise: Array) -> None:
        decades = np.clip(DECADES[exponent(exact)] - self.base, 0, self.count - 1)
        scale = self.scale[decades]
        with np.errstate(invalid="ignore", over="ignore"):
            y, z, s = np.abs(exact * scale), residual * scale, noise * scale
            known = np.isfinite(y) & np.isfinite(z)
            vague = known & ~(s <= UNDETERMINED * np.maximum(y, 1.0))
        known &= ~vague
        if len(self.where) < TOLD:
            self.where += [int(place) for place in places[np.flatnonzero(vague)[: TOLD - len(self.where)]]]
        self.undetermined += int(vague.sum())
        if not known.all():
            decades, y, z, s, places = (array[known] for array in (decades, y, z, s, places))
        self.determined += decades.size
        squares = np.square(z), np.square(s), np.square(y)
        self._sum(0, decades, squares)
        for index, (length, stride) in enumerate(self.axes, start=1):
            self._sum(index, decades * length + places // stride % length, squares)
        levels = np.bincount(decades * EXPONENTS + exponent(squares[1]), minlength=self.levels.size)
        self.levels += levels.reshape(self.levels.shape)

    def _sum(self, index: int, keys: Array, squares: Sequence[Array]) -> None:
        sums = self.sums[index]
        sums[0] += np.bincount(keys, minlength=sums.shape[1])
        for row, values in enumerate(squares, start=1):
            sums[row] += np.bincount(keys, values, minlength=sums.shape[1])

    def summary(self, least_decade: int, shape: Sequence[int]) -> Local:
        lift, ratio, shares = self._lift(), 0.0, []
        for index, sums in enumerate(self.sums):
            used = sums[0] >= (LEAST_GROUP if index else least_decade)
            counts, errors, noises, sizes = sums[:, used]
            floors = noises + counts * np.repeat(lift, sums.shape[1] // self.count)[used]
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = np.where(errors > 0, np.sqrt(errors / floors), 0.0)
            ratio = max(ratio, float(ratios.max(initial=0.0)))
            shares.append((np.sqrt(floors / np.maximum(sizes, counts)), counts))
        typical, worst = (
            _median_and_largest(shares) if self.determined or not self.undetermined else (math.inf, math.inf)
        )
        where = tuple(tuple(int(i) for i in np.unravel_index(place, shape)) for place in self.where)
        return Local(ratio, self._whole(), typical, worst, self.determined, self.undetermined, where)

    def _whole(self) -> float:
        """The residual / noise floor of all values together."""
        _, errors, noises, _ = self.sums[0]
        used = np.flatnonzero(errors + noises)
        if not used.size:
            return 0.0
        size = 100.0 ** np.maximum(used - float(used[-1]), -150.0)  # squares of the sizes of the decades
        error, noise = float((errors[used] * size).sum()), float((noises[used] * size).sum())
        return quotient(math.sqrt(error), math.sqrt(noise))

    def _lift(self) -> Array:
        """What is added to the squared noise of each decade, in its own units.

        A group that is almost exact would count its last bits otherwise. Runtimes compute functions such as the sigmoid with an
        absolute error, so that values far below the others have few digits.
        """
        totals = np.cumsum(self.levels, axis=1)
        median = np.argmax(totals >= np.maximum(1, totals[:, -1:] / 2), axis=1)
        noise = np.where(median > 0, np.exp2(median.astype(np.float64) - BIAS), 0.0)
        lift: Array = LIFT * noise
        below = np.arange(min(LOWEST, self.count))
        if self.count > LOWEST:
            lift[below] += TYPICAL * noise[LOWEST] * 100.0 ** (LOWEST - below)
        return lift


def quotient(error: float, floor: float) -> float:
    """error / floor; infinite for an error without a floor."""
    return error / floor if floor else (0.0 if error == 0 else math.inf)


def _median_and_largest(shares: Sequence[tuple[Array, Array]]) -> tuple[float, float]:
    """The median over values of the share of their group, and the largest. shares: (shares of groups, their numbers of values)."""
    values, counts = (np.concatenate(column) for column in zip(*shares))
    if not values.size:
        return 0.0, 0.0
    order = np.argsort(values)
    place = np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)
    return float(values[order][place]), float(values.max())


def sampled(exact: Array, samples: Sequence[Array]) -> Array:
    """The rms of the noise of every value, as some perturbed evaluations show it; it is not finite where one of them is not.

    Few samples may all be small, so their mean is as much larger as its standard error says; see ``limits.mean_with_doubt``.
    """
    found: Array = np.zeros(exact.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        changes = [data - exact for data in samples]
        for change in changes:
            found = np.hypot(found, change / math.sqrt(len(changes)))
    means = [rms(change) for change in changes]
    largest = max(means, default=0.0)
    if not largest:
        return found
    squares = [(mean / largest) ** 2 for mean in means]
    return found * math.sqrt(mean_with_doubt(squares) / math.fsum(squares) * len(squares))


def output_noise(exact: Array, perturbed: Sequence[Array], float32: Array) -> Array:
    """The noise of every value of an output: its changes, its own error in float32, and its rounding.

    That of whole numbers is infinite where one of these evaluations has another value, and else 0.
    """
    samples = [each for each in perturbed if each.shape == exact.shape]
    if exact.dtype.kind != "f":
        changed = np.any([each != exact for each in (*samples, float32) if each.shape == exact.shape], axis=0)
        return np.where(changed, np.inf, np.zeros(exact.shape))
    if not samples:
        return np.full(exact.shape, np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        error = float32.astype(np.float64) - exact
        found: Array = np.hypot(np.hypot(sampled(exact, samples), error), UNIT / math.sqrt(3) * np.abs(exact))
    return found


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
        step = _step(exact.shape, most)
        values = exact.reshape(-1)[::step].astype(np.float64, copy=False)
        places = np.arange(values.size) * step
        size, squares = rms(values), noise(places)
        relative = _scaled(values, size)
        counts = exponents(relative)
        base, present = lowest_decade(counts), np.flatnonzero(counts[:-1])
        rows = max(1, int(DECADES[present[-1]]) - base + 1) if present.size else 1
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
