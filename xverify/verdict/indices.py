"""What the values of one index of an axis show together: those of a class, a channel, a position or an item.

A group of one decade of sizes needs several values, and one class of a small batch has few. So the values of one index are a group
over all decades, and over all input cases. Each part of it counts in units of its own noise, so no noise hides another part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..weights.canonical import Array
from .limits import EQUAL_C

LEAST_INDEX = 4  # values of one index; the noise of few values is that of their decade, too


@dataclass(frozen=True)
class Indices:
    """The sums of each index of one axis.

    axis, dimensions: the axis, and the number of axes.
    numbers: of values with a significant digit. errors, sizes: their squared residuals and exact values / squared noise floor.
    of_all: the sum of their squared exact values / that of the squared noise of all values of an input case.
    vague: number of values without a digit. vague_errors: their squared residuals / squared noise.
    zero: number of those that are at most an eighth of their noise. lost: number of those whose noise is not known.
    """

    axis: int
    dimensions: int
    numbers: Array
    errors: Array
    sizes: Array
    of_all: Array
    vague: Array
    vague_errors: Array
    zero: Array
    lost: Array


@dataclass(frozen=True)
class Shown:
    """What the indices of some axes show, with the detection limits as shares: limit = EQUAL_C x share.

    ratio: the largest rms of the residual / noise floor of an index. at: which index that is, such as "[:, 7]".
    share: of an error in all values of one index, the largest of those that are judged; None where there is none.
    value_share: of an error in one value that is as large as others of its index.
    not_judged: the indices in most of whose values an error as large as the cap would not show.
    rounding: the indices whose values are zero but for rounding.
    """

    ratio: float = 0.0
    at: str = ""
    share: float | None = None
    value_share: float | None = None
    not_judged: tuple[str, ...] = ()
    rounding: tuple[str, ...] = ()


def shown(found: Iterable[Indices], whole_limit: float, cap: float, step: int = 1) -> Shown:
    """What some indices show.

    found: those of one axis and of several input cases are added.
    whole_limit: the largest ratio of all values of a tensor that is EQUAL. cap: the largest detection limit of what is judged.
    step: the distance of the values that were compared; one value between them shows in the ratio of all values alone.
    """
    axes: dict[tuple[int, int, int], list[Indices]] = {}
    for each in found:
        axes.setdefault((each.axis, each.dimensions, each.numbers.size), []).append(each)
    return _together([_of_axis(parts, whole_limit, cap, step) for parts in axes.values()])


def _together(axes: Sequence[Shown]) -> Shown:
    worst = max(axes, key=lambda each: each.ratio, default=Shown())
    shares = [each.share for each in axes if each.share is not None]
    of_values = [each.value_share for each in axes if each.value_share is not None]
    # An error in one value shows in the index of any axis, and one in a whole index shows at least as well as in one of its values.
    value = min(of_values, default=None)
    share = None if value is None else min(value, max(shares))
    return Shown(
        worst.ratio, worst.at, share, value,
        tuple(name for each in axes for name in each.not_judged), tuple(name for each in axes for name in each.rounding),
    )  # fmt: skip


def _of_axis(parts: Sequence[Indices], whole_limit: float, cap: float, step: int) -> Shown:
    numbers, errors, sizes, vague, vague_errors, zero, lost = (
        np.sum([getattr(each, name) for each in parts], axis=0)
        for name in ("numbers", "errors", "sizes", "vague", "vague_errors", "zero", "lost")
    )
    of_all = np.max([each.of_all for each in parts], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.maximum(_means(errors, numbers), _means(vague_errors, vague))
        own = np.where(numbers >= LEAST_INDEX, np.sqrt(numbers / sizes), np.inf)
        whole = whole_limit / EQUAL_C / np.sqrt(of_all)
        share = np.fmin(own, whole)
        value = np.fmin(own if step == 1 else np.inf, whole * np.sqrt(step / len(parts))) * np.sqrt(numbers)
    some = sizes > 0
    blind = some & (EQUAL_C * share > cap)
    total = numbers + vague + lost
    bad = np.where(blind, numbers, 0) + (vague - zero) + lost
    not_judged, rounding = 2 * bad > total, 2 * zero > total
    judged = some & ~blind
    worst = int(squares.argmax())
    return Shown(
        float(np.sqrt(squares[worst])),
        names(parts[0], [worst])[0],
        float(share[judged].max()) if judged.any() else None,
        float(value[judged].max()) if judged.any() else None,
        names(parts[0], np.flatnonzero(not_judged)),
        names(parts[0], np.flatnonzero(rounding)),
    )


def _means(squares: Array, numbers: Array) -> Array:
    """The mean squares of each index; 0 where it has few values."""
    found: Array = np.where(numbers >= LEAST_INDEX, squares / numbers, 0.0)
    return found


def names(indices: Indices, chosen: Sequence[int] | Array) -> tuple[str, ...]:
    """Some indices of an axis as Python writes them, those that are neighbours together: "[:, 3]", "[..., 5:8]"."""
    runs = list[list[int]]()
    for each in map(int, chosen):
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    before = ":, " * indices.axis if indices.axis < 2 else "..., "
    after = ", :" * (indices.dimensions - 1 - indices.axis) if indices.axis >= 2 else ""
    return tuple(f"[{before}{run[0] if len(run) == 1 else f'{run[0]}:{run[-1] + 1}'}{after}]" for run in runs)
