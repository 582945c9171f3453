"""The ratios of residual and noise of an output: pure functions over arrays, which are processed in parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..results.verdicts import Verdict
from ..weights.canonical import Array
from . import limits as rule
from .indices import Shown
from .local import Local, local_of, quotient

# The noise of an output: the rms of every value, or one rms for all of them.
Floor = Array | float
PART = 2**18  # values that are processed at a time: their float64 copies stay in the processor's cache
# What a result of this type may lose because it is too small; some frameworks flush denormals of float32 to zero.
UNDERFLOW = {"float32": 2.0**-126, "float16": 2.0**-24}


def noise_ratios(
    ours: Array, theirs: Array, exact: Array, floor: Floor, cap: float = rule.CAP, cases: int = 1
) -> Local:
    """The difference of two arrays / the noise of an output, over the values that are finite.

    exact: the exact output. Where its noise is one number, there are no groups: it says nothing about single values.
    cases: the number of input cases; see ``local_of``.
    """
    if isinstance(floor, np.ndarray):
        flat = floor.reshape(-1)
        return _in_groups(ours, theirs, exact, lambda part, _: flat[part].astype(np.float64, copy=False), cap, cases)
    squares, sizes, count = 0.0, 0.0, 0
    largest = float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0)) or 1.0
    for a, b, y in parts(ours, theirs, exact):
        with np.errstate(invalid="ignore"):
            residual, size = (a.astype(np.float64) - b) / largest, y / largest
        used = np.isfinite(residual) & np.isfinite(size)
        squares, sizes = squares + float(np.square(residual[used]).sum()), sizes + float(np.square(size[used]).sum())
        count += int(used.sum())
    # Without groups, the limit of rho is the one that an error meets; one that is in a single index is diluted among all.
    share = rule.EQUAL_RHO / rule.EQUAL_C * quotient(floor / largest, math.sqrt(sizes / max(1, count)))
    indices = max((*exact.shape[1:2], *exact.shape[-1:]), default=1)
    whole = quotient(math.sqrt(squares / max(1, count)), floor / largest)
    of_index, of_value = math.sqrt(indices) * share, math.sqrt(max(1, count)) * share
    return Local(0.0, whole, share, of_index, count, shown=Shown(share=of_index, value_share=of_value))


def in_range(exact: Array, dtype: np.dtype[Any]) -> Array:
    """Exact values as a type of numbers can hold them: those that it rounds to infinity are infinite."""
    if exact.dtype.kind != "f" or dtype.kind != "f" or dtype.itemsize >= exact.dtype.itemsize:
        return exact
    info = np.finfo(dtype)
    infinite = 2.0 ** int(info.maxexp) * (1.0 - float(info.eps) / 4)  # half a step beyond the largest number
    if all(bool((np.abs(part) < infinite).all()) for (part,) in parts(exact)):
        return exact
    return np.where(np.abs(exact) >= infinite, np.copysign(np.inf, exact), exact)


def within_limits(ours: Array, exact: Array, floor: Floor) -> bool:
    """Whether an output is EQUAL by the plain limits. ours: of the first items, which may be all.

    Outputs that cannot be compared, or are not finite in the same places, are not.
    """
    if ours.ndim and ours.shape != exact.shape and ours.shape[1:] == exact.shape[1:]:
        items = slice(len(ours))
        exact, floor = exact[items], floor[items] if isinstance(floor, np.ndarray) and floor.ndim else floor
    if ours.shape != exact.shape or not np.array_equal(np.isfinite(ours), np.isfinite(exact)):
        return False
    if exact.dtype.kind != "f":
        return bool(np.array_equal(ours, exact))
    found = noise_ratios(ours, exact, exact, floor)
    return rule.classify_rho(found.whole, local=found.ratio) == Verdict.EQUAL


def all_within_limits(compared: Iterable[tuple[Array, Array, Floor]]) -> bool:
    """Whether all outputs that have a finite value are within the limits; False where none has one.

    compared: an output, the exact one and its floor, as ``within_limits`` takes them.
    """
    finite = [each for each in compared if np.isfinite(each[1]).any()]
    return bool(finite) and all(within_limits(*each) for each in finite)


def first_finite(outputs: Mapping[str, Array]) -> str | None:
    """The first input case with an output that has a finite value; None when there is none. outputs: "case/name" -> array."""
    return next((key.partition("/")[0] for key in outputs if np.isfinite(outputs[key]).any()), None)


def unmoved(found: Mapping[str, Array], case: str, outputs: Mapping[str, Array], floors: Mapping[str, Floor]) -> bool:
    """Whether other weights leave the outputs of an input case within the limits.

    found: what was computed with them, "0/name" -> array. outputs, floors: of the own weights, "case/name" -> array.
    """
    pairs = [(found[key], case + key.removeprefix("0")) for key in found]
    return all_within_limits(
        (array, outputs[key], floors[key]) for array, key in pairs if key in floors and key in outputs
    )


def _in_groups(
    ours: Array,
    theirs: Array,
    exact: Array,
    noise: Callable[[slice, Array], Array],
    cap: float = rule.CAP,
    cases: int = 1,
    whole_limit: float = rule.EQUAL_RHO,
) -> Local:
    """The difference of two arrays / the noise of every value, in groups. noise: (a part of the values, exact ones) -> noise."""
    one, other = ours.reshape(-1), theirs.reshape(-1)
    least = UNDERFLOW.get(ours.dtype.name, 0.0)

    def compared(places: Array, values: Array) -> tuple[Array, Array]:
        part = slice(int(places[0]), int(places[-1]) + 1)
        with np.errstate(invalid="ignore", over="ignore"):
            rounding = noise(part, values)
            return one[part].astype(np.float64) - other[part], np.where(rounding == 0, 0.0, np.hypot(rounding, least))

    return local_of(exact, compared, cap=cap, whole_limit=whole_limit, cases=cases)


def own_ratios(ours: Array, exact: Array, single: Array, cases: int = 1) -> Local:
    """The ratios where the error of one float32 run and the rounding of the result are the noise of every value."""
    flat = single.reshape(-1)
    unit = rule.UNIT / math.sqrt(3)

    def noise(part: slice, y: Array) -> Array:
        found: Array = np.hypot(flat[part].astype(np.float64) - y, unit * y)
        return found

    whole_limit = rule.OWN_EQUAL * rule.EQUAL_C / rule.OWN_GROUP  # in units of the limit of a group
    return _in_groups(ours, exact, exact, noise, cases=cases, whole_limit=whole_limit)


def parts(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """The next ``PART`` values of every array; the arrays have one shape."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, PART):
        yield tuple(array[start : start + PART] for array in flat)
