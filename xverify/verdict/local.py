"""Ratios of residual and noise floor in groups of values, so that a few large values cannot hide all others.

The groups are the decades of size of the exact values, and within a decade the values of one item, of one index of axis 1, and of
one index of the last axis. One rms over a whole tensor is that of its largest values: beside a class that is masked with -1e9,
every other class could have the opposite sign. Values without a significant digit are groups of their own (see ``Rounding``), and
the values of one index are a group over all decades (see ``indices``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..weights.canonical import Array
from .indices import LEAST_INDEX, Indices, Shown, shown
from .limits import CAP, EQUAL_C, EQUAL_RHO, LIFT, TYPICAL, UNDETERMINED, UNIT, mean_with_doubt
from .sizes import rms

LEAST_GROUP = 8  # values of one item or one index within a decade
# Values of a decade. The noise of m values is itself measured on m samples of two kinds, so that the ratio of honest values has the
# distribution F(m, 2m) and exceeds the limit by chance: at the limit of 10 with a probability of 2e-5 for m = 3 and 7e-7 for m = 4.
LEAST_DECADE = 4
# Decades below the median's. The last one holds all smaller values, too: zero crossings have no decades of their own.
LOWEST = 3
GAP = 2  # empty decades between values that have nothing to do with each other, such as masks and scores
SPREAD = 0.2  # share of the smaller values above which they are spread over many decades, each with its own noise
FEW = 0.01  # share of the values below which smaller values are no part of their own, but zero crossings of larger ones
PART = 2**14  # values that are processed at a time
EXPONENTS, BIAS = 2**11, 1023  # of a float64
DECADES = np.floor((np.arange(EXPONENTS) - BIAS) * math.log10(2)).astype(np.int64)  # exponent -> decade of its values
TOLD = 8  # undetermined values whose index is kept
# Values of a layer that are compared: so many for each index of its longest axis, within these bounds.
PER_INDEX, FEWEST, MOST = 64, 2**14, 2**17
MOST_SUMS = 2**18  # groups of one axis whose sums are kept; a longer axis has no groups

# (places of some values in the flat array, these exact values) -> their residuals, and the rms of the noise of each.
Compared = Callable[[Array, Array], tuple[Array, Array]]


@dataclass(frozen=True)
class Local:
    """What the groups of one tensor show.

    ratio: the largest rms of the residual / noise floor of a group.
    whole: the same of all values together.
    floor_share: noise floor / rms of the exact values in the median group: half of the values are in groups that have at most this.
    worst_share: the same in the worst group.
    determined, undetermined: number of values with a significant digit, and without one.
    where: the index of each undetermined value, the first TOLD of them.
    shown: what the indices of its axes show. indices: their sums. partial: whether an axis is too long for them.
    """

    ratio: float = 0.0
    whole: float = 0.0
    floor_share: float = 0.0
    worst_share: float = 0.0
    determined: int = 0
    undetermined: int = 0
    where: tuple[tuple[int, ...], ...] = ()
    shown: Shown = field(default_factory=Shown)
    indices: tuple[Indices, ...] = ()
    partial: bool = False

    @property
    def undetermined_share(self) -> float:
        """The share of values without a significant digit."""
        return self.undetermined / max(1, self.determined + self.undetermined)


def local(exact: Array, residual: Array, noise: Array, certain: bool = False) -> Local:
    """Compare a residual with the noise of every value, in groups.

    exact, residual, noise: arrays of one shape. The noise is the rms of every value; infinity or NaN where it is not known. Values
        that are not finite in the first two are in no group.
    """
    flat = residual.reshape(-1), noise.reshape(-1)

    def compared(places: Array, _: Array) -> tuple[Array, Array]:
        part = slice(int(places[0]), int(places[-1]) + 1)
        return flat[0][part], flat[1][part]

    return local_of(exact, compared, certain=certain)


def local_of(
    exact: Array,
    compared: Compared,
    most: int | None = None,
    axis: int | None = None,
    cap: float = CAP,
    whole_limit: float = EQUAL_RHO,
    cases: int = 1,
    certain: bool = False,
) -> Local:
    """The same where residual and noise are computed when they are needed.

    compared: see ``Compared``.
    most: the number of values that are enough; of a larger tensor, values at regular distances are taken. None: all.
    axis: an axis whose indices are groups beside those of the items, axis 1 and the last axis.
    cap: the largest detection limit of what counts as judged.
    whole_limit: the largest ratio of all values that is EQUAL.
    cases: so many input cases have values of the same indices.
    certain: whether only groups accuse whose own detection limit is below the cap: the noise of a training step has no certain
        size where it is larger.
    """
    if not exact.size:
        return Local()
    step = step_of(exact.shape, most)
    flat = exact.reshape(-1)[::step]
    chosen = {0, min(1, exact.ndim - 1), exact.ndim - 1} | ({axis} if axis is not None else set())
    rows = Rows.from_exponents(exponents(flat))
    axes = [
        Axis(each, exact.shape[each], math.prod(exact.shape[each + 1 :]))
        for each in sorted(chosen)
        if 0 <= each < exact.ndim and exact.shape[each] > 1
    ]
    used = [
        axis
        for axis in axes
        if axis.length <= flat.size * (cases if axis.number else 1) // LEAST_INDEX
        and axis.length * len(rows.decades) <= MOST_SUMS
    ]
    groups = _Groups(rows, used, cap, whole_limit, certain)
    for start in range(0, flat.size, PART):
        values = flat[start : start + PART].astype(np.float64, copy=False)
        places = np.arange(start, start + values.size) * step
        groups.add(places, values, *(each.astype(np.float64, copy=False) for each in compared(places, values)))
    found = groups.summary(exact.shape, step)
    partial = any(axis.number and axis not in used for axis in axes)
    return replace(found, partial=True, shown=replace(found.shown, share=None)) if partial else found


def enough(shape: Sequence[int]) -> int:
    """The number of values of a layer's tensor that are enough to compare it in groups."""
    return min(MOST, max(FEWEST, PER_INDEX * max(shape, default=1)))


def step_of(shape: Sequence[int], most: int | None) -> int:
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


@dataclass(frozen=True)
class Rows:
    """The decades of a tensor that are groups.

    Values between which there are empty decades are parts that have nothing to do with each other, such as masks and scores. In
    each part, a decade is a row, down to LOWEST decades below that of its median.

    of: exponent -> row. decades: of each row, the lowest one that it holds.
    typical: of each row, that of the median of its part; a row of values that are spread over many decades is its own.
    """

    of: Array
    decades: Array
    typical: Array

    @classmethod
    def from_exponents(cls, counts: Array) -> Rows:
        """counts: how many values have each exponent. Zeros do not count, as after a ReLU."""
        numbers = np.bincount(DECADES - DECADES[0], np.where(_USUAL, counts, 0))
        rows = np.zeros(len(numbers), np.int64)
        decades: list[int] = []
        typical: list[int] = []
        start = 0
        for low, high in _separate(numbers):
            cumulated = np.cumsum(numbers[low : high + 1])
            median = low + int(np.searchsorted(cumulated, cumulated[-1] / 2))
            first = max(low, median - LOWEST)
            is_spread = cumulated[first - low] - numbers[first] > SPREAD * cumulated[-1]
            first = low + int(np.searchsorted(cumulated, FEW * cumulated[-1])) if is_spread else first
            begin = len(decades)
            rows[start : first + 1] = begin
            rows[first : high + 1] = begin + np.arange(high + 1 - first)
            decades += range(first + int(DECADES[0]), high + 1 + int(DECADES[0]))
            own = range(begin, begin + high + 1 - first)
            typical += own if is_spread else [begin + median - first] * len(own)
            start = high + 1
        if not decades:
            return cls(np.zeros(EXPONENTS, np.int64), DECADES[:1], np.zeros(1, np.int64))
        rows[start:] = len(decades) - 1
        return cls(rows[DECADES - DECADES[0]], np.array(decades), np.array(typical))


_USUAL = (np.arange(EXPONENTS) > 0) & (np.arange(EXPONENTS) < EXPONENTS - 1)


def _separate(numbers: Array) -> list[tuple[int, int]]:
    """The first and last decade of each part, which may begin with empty ones. numbers: of the values of each decade."""
    used = np.flatnonzero(numbers)
    if not used.size:
        return []
    ends = np.flatnonzero(np.diff(used) > GAP)
    lasts = [int(each) for each in used[np.append(ends, used.size - 1)]]
    found, low = list[tuple[int, int]](), int(used[0])
    for last in lasts:
        if numbers[low : last + 1].sum() >= FEW * numbers.sum() or last == lasts[-1]:
            found.append((low, last))
            low = last + 1
    return found


@dataclass(frozen=True)
class Axis:
    """An axis whose indices are groups. stride: distance of its neighbours in the flat array."""

    number: int
    length: int
    stride: int

    def of(self, places: Array) -> Array:
        """The index of each of these places in the flat array."""
        found: Array = places // self.stride % self.length
        return found


class _Groups:
    """Sums of squares by group, each in units of the size of its decade, so that no square over- or underflows.

    cap, whole_limit, certain: see ``local_of``.
    """

    def __init__(self, rows: Rows, axes: Sequence[Axis], cap: float, whole_limit: float, certain: bool) -> None:
        self.rows, self.axes, self.cap, self.whole_limit, self.certain = rows, axes, cap, whole_limit, certain
        self.count = len(self.rows.decades)
        self.scale = 10.0 ** -np.clip(self.rows.decades, -300, 300).astype(np.float64)
        # Of each group: the numbers of values and of those that are not 0, and the squares of residual, noise and size.
        self.sums = [np.zeros((5, self.count * length)) for length in (1, *(axis.length for axis in axes))]
        self.levels = np.zeros((self.count, EXPONENTS), np.int64)  # of the squared noise of a decade, by exponent
        self.rounding = Rounding(axes)
        self.determined = self.undetermined = 0
        self.where: list[int] = []

    def add(self, places: Array, exact: Array, residual: Array, noise: Array) -> None:
        rows = self.rows.of[exponent(exact)]
        scale = self.scale[rows]
        with np.errstate(invalid="ignore", over="ignore"):
            y, z, s = np.abs(exact * scale), residual * scale, noise * scale
            known = np.isfinite(y) & np.isfinite(z)
            vague = known & ~(s <= max(UNDETERMINED, self.cap) * np.maximum(y, 1.0))
        if len(self.where) < TOLD:
            self.where += [int(place) for place in places[np.flatnonzero(vague)[: TOLD - len(self.where)]]]
        self.undetermined += int(vague.sum())
        known &= ~vague
        # Of a value near zero that differs, the noise may be a sample in which it was cut off; its neighbours tell.
        doubtful = known & (y < 1) & (z != 0)
        self.rounding.add(places, exact, residual, noise, vague, doubtful)
        known &= ~doubtful
        self._add(*(each if known.all() else each[known] for each in (places, rows, y, z, s)))

    def _add(self, places: Array, rows: Array, y: Array, z: Array, s: Array) -> None:
        """Add values with a digit. rows: of each value. y, z, s: size, residual and noise in the units of its row."""
        self.determined += rows.size
        with np.errstate(over="ignore"):  # an error beside exact values that are all 0 may be of any size
            amounts = (y > 0).astype(np.float64), np.square(z), np.square(s), np.square(y)
        self._sum(0, rows, amounts)
        for index, axis in enumerate(self.axes, start=1):
            self._sum(index, rows * axis.length + axis.of(places), amounts)
        levels = np.bincount(rows * EXPONENTS + exponent(amounts[2]), minlength=self.levels.size)
        self.levels += levels.reshape(self.levels.shape)

    def _sum(self, index: int, keys: Array, amounts: Sequence[Array]) -> None:
        sums = self.sums[index]
        sums[0] += np.bincount(keys, minlength=sums.shape[1])
        for row, values in enumerate(amounts, start=1):
            sums[row] += np.bincount(keys, values, minlength=sums.shape[1])

    def summary(self, shape: Sequence[int], step: int) -> Local:
        for places, exact, residual, noise in self.rounding.settled():
            rows = self.rows.of[exponent(exact)]
            scale = self.scale[rows]
            self._add(places, rows, np.abs(exact * scale), residual * scale, noise * scale)
        lift, ratio, shares = self._lift(), 0.0 if self.certain else self.rounding.ratio(), []
        for index, sums in enumerate(self.sums):
            least = LEAST_GROUP if index else LEAST_DECADE
            used = sums[0] >= (
                least if index else 1
            )  # a decade of few values accuses nobody, but has a detection limit
            counts, some, errors, noises, sizes = sums[:, used]
            floors = noises + counts * np.repeat(lift, sums.shape[1] // self.count)[used]
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.sqrt(floors / counts / np.maximum(sizes / np.maximum(some, 1), 1.0))
                accuses = (errors > 0) & (counts >= least) & ((EQUAL_C * share <= self.cap) | (not self.certain))
                ratios = np.where(accuses, np.sqrt(errors / floors), 0.0)
                # In a lower precision most groups have few digits, and what shows in all values together counts as seen, too.
                if self.cap > CAP:
                    of_all = np.sqrt(np.repeat(self._total_noise(), sums.shape[1] // self.count)[used] / sizes)
                    share = np.fmin(share, self.whole_limit / EQUAL_C * of_all)
            ratio = max(ratio, float(ratios.max(initial=0.0)))
            shares.append((share[some > 0], some[some > 0]))
        typical, worst = _median_and_largest(shares)
        if self.undetermined and not self.determined:
            typical = worst = math.inf
        where = tuple(tuple(int(i) for i in np.unravel_index(place, shape)) for place in self.where)
        indices = [self._indices(index, len(shape), lift) for index in range(len(self.axes))]
        found = shown(indices, self.whole_limit, self.cap, step)
        return Local(
            ratio if self.certain else max(ratio, found.ratio), self._whole(), typical, worst, self.determined,
            self.undetermined, where, found, tuple(indices),
        )  # fmt: skip

    def _indices(self, index: int, dimensions: int, lift: Array) -> Indices:
        """What the indices of an axis show, over all decades."""
        axis = self.axes[index]
        counts, _, errors, noises, sizes = self.sums[index + 1].reshape(5, self.count, axis.length)
        numbers, _, _, total, _ = self.sums[0]
        typical = _medians(self.levels)
        mean = total / np.maximum(numbers, 1)
        # In a lower precision, a value may be half a step from where it changes, and its own noise is no sample.
        typical = np.where((typical > 0) & (self.cap <= CAP), typical, mean)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            floors = noises / counts + typical / counts + lift[:, None]
            units = np.where(floors > 0, sizes / floors, 0.0)
            apart = np.where(errors > 0, errors / floors, 0.0)
            of_all = np.where(sizes > 0, sizes / self._total_noise()[:, None], 0.0)
        return Indices(
            axis.number, dimensions, counts.sum(axis=0), apart.sum(axis=0), units.sum(axis=0), of_all.sum(axis=0),
            *self.rounding.of_axis(index),
        )  # fmt: skip

    def _whole(self) -> float:
        """The residual / noise floor of all values together."""
        _, _, errors, noises, _ = self.sums[0]
        used = np.flatnonzero(errors + noises)
        if not used.size:
            return 0.0
        decades = self.rows.decades[used].astype(np.float64)
        size = 100.0 ** np.maximum(decades - decades.max(), -150.0)  # squares of the sizes of the decades
        error, noise = float((errors[used] * size).sum()), float((noises[used] * size).sum())
        return quotient(math.sqrt(error), math.sqrt(noise))

    def _total_noise(self) -> Array:
        """The sum of the squared noise of all values, in the units of each decade."""
        decades = self.rows.decades.astype(np.float64)
        apart = np.clip(decades[None, :] - decades[:, None], -150.0, 150.0)
        with np.errstate(over="ignore"):
            total: Array = (100.0**apart * self.sums[0][3]).sum(axis=1)
        return total

    def _lift(self) -> Array:
        """What is added to the squared noise of each decade, in its own units.

        A group that is almost exact would count its last bits otherwise. Runtimes compute functions such as the sigmoid with an
        absolute error, so that values far below the others have few digits.
        """
        noise, typical = _medians(self.levels), self.rows.typical
        above = np.maximum(self.rows.decades[typical] - self.rows.decades, 0).astype(np.float64)
        lift: Array = LIFT * noise + np.where(above > 0, TYPICAL * noise[typical] * 100.0**above, 0.0)
        return lift


class Rounding:
    """Values without a significant digit: what is known of them is that they are as small as their own noise.

    Those of one index of an axis are a group, and all of them are one. A value near zero joins them where each of its indices has
    one of them: behind a clamp at zero, all drawn perturbations of a value may be cut off.
    """

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.axes = axes
        self.vague = list[tuple[Array, ...]]()  # places, exact values, residuals and noise
        self.doubtful = list[tuple[Array, ...]]()
        self.lost = [np.zeros(axis.length) for axis in axes]  # values whose noise is not known
        self.size = 1.0

    def add(self, places: Array, exact: Array, residual: Array, noise: Array, vague: Array, doubtful: Array) -> None:
        """Add values: those that are vague, and those that are doubtful."""
        finite = vague & np.isfinite(noise)
        for chosen, kept in ((finite, self.vague), (doubtful, self.doubtful)):
            if chosen.any():
                kept.append(tuple(each[chosen] for each in (places, exact, residual, noise)))
        if vague.any():
            lost = places[vague & ~finite]
            for axis, numbers in zip(self.axes, self.lost):
                numbers += np.bincount(axis.of(lost), minlength=axis.length)

    def settled(self) -> Iterator[tuple[Array, ...]]:
        """Let doubtful values join, and return the others: places, exact values, residuals and noise."""
        some = [np.zeros(axis.length, bool) for axis in self.axes]
        for places, *_ in self.vague:
            for axis, found in zip(self.axes, some):
                found[axis.of(places)] = True
        others = self.doubtful
        if self.vague:
            others = []
            for each in self.doubtful:
                joins = np.ones(len(each[0]), bool)
                for axis, found in zip(self.axes, some):
                    joins &= found[axis.of(each[0])]
                self.vague.append(tuple(values[joins] for values in each))
                others.append(tuple(values[~joins] for values in each))
        self.doubtful = []
        largest = max((float(noise.max(initial=0.0)) for *_, noise in self.vague), default=0.0)
        self.size = largest or 1.0
        yield from others

    def ratio(self) -> float:
        """The rms of the residual / noise of all of them; 0.0 where they are few."""
        numbers, errors, noises = (float(each.sum()) for each in self._sums(lambda places: places * 0, 1)[:3])
        return quotient(math.sqrt(errors), math.sqrt(noises)) if numbers >= LEAST_GROUP else 0.0

    def of_axis(self, index: int) -> tuple[Array, Array, Array, Array]:
        """Of each index: the number of these values, their squared residuals / squared noise, and how many are zero or lost."""
        axis = self.axes[index]
        numbers, errors, noises, zero = self._sums(axis.of, axis.length)
        squares = [np.square(noise / self.size) for *_, noise in self.vague]
        typical = float(np.median(np.concatenate(squares))) if squares else 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            floors = noises / numbers + typical * np.maximum(LIFT, 1 / numbers)
            apart = np.where(errors > 0, errors / floors, 0.0)
        return numbers, apart, zero, self.lost[index]

    def _sums(self, keys: Callable[[Array], Array], length: int) -> Array:
        """Of each key: the number of values, the squares of residual and noise, and the number of those that are but rounding."""
        sums = np.zeros((4, length))
        for places, exact, residual, noise in self.vague:
            with np.errstate(over="ignore"):
                squares = np.square(residual / self.size), np.square(noise / self.size)
            zero = np.abs(exact) <= UNDETERMINED * noise
            for row, values in zip(sums, (np.ones(len(places)), *squares, zero.astype(np.float64))):
                row += np.bincount(keys(places), values, minlength=length)
        return sums


def _medians(levels: Array) -> Array:
    """Of each row, the median of values of which these numbers have each exponent."""
    totals = np.cumsum(levels, axis=1)
    median = np.argmax(totals >= np.maximum(1, totals[:, -1:] / 2), axis=1)
    found: Array = np.where(median > 0, np.exp2(median.astype(np.float64) - BIAS), 0.0)
    return found


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
    noise: Array = np.zeros(exact.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        changes = [data - exact for data in samples]
        for change in changes:
            noise = np.hypot(noise, change / math.sqrt(len(changes)))
    means = [rms(change) for change in changes]
    largest = max(means, default=0.0)
    if not largest:
        return noise
    squares = [(mean / largest) ** 2 for mean in means]
    return noise * math.sqrt(mean_with_doubt(squares) / math.fsum(squares) * len(squares))


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
