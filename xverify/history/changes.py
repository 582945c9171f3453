"""What changed in a series: a pure function of its points.

Every measure is compared with the point at which its present level began, and not with the point before, so that a slow drift is
seen as soon as it is large enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..report import numbers
from ..results.verdicts import Verdict
from ..timing.statistics import SAME
from ..verdict import limits
from ..verdict.limits import OWN_DRIFT, OWN_EQUAL
from .records import BETTER, OTHER, WORSE, Point

MEMORY_FACTOR = 1.10  # peaks that differ by less are no change
MEMORY_MIB = 10.0  # neither are peaks that differ by less than this
RHO_FACTOR = 2.0  # residuals that differ by less are no change
RHO_LEAST = 1.0  # noise floors; below, both are rounding
# What the floor of a residual is -> the limits of EQUAL and of DRIFT.
LIMITS = {
    "layers": (limits.EQUAL_RHO, limits.DRIFT_RHO),
    "check": (limits.EQUAL_R, limits.DRIFT_R),
    "float32": (OWN_EQUAL, OWN_DRIFT),
}
VERDICT, RATIO, RHO = "verdict", "time ratio", "residual / noise floor"
PEAK, PEAK_OF_DEVICE = "peak memory", "peak memory of the device"
NO_RESULT = len(Verdict)  # the rank of a row that did not run: worse than every verdict
RANKS = {str(verdict): verdict.rank for verdict in Verdict}
RULE = (
    "A verdict changed when it is another one; IDENTICAL and EQUAL are as good as each other. "
    "A time ratio changed when its 95% interval and the earlier one do not overlap, and it is more than "
    f"{math.expm1(SAME):.0%} away; ratios of one process run and ratios to different baselines are not compared. "
    f"Memory changed when the peak is {MEMORY_FACTOR - 1:.0%} and {MEMORY_MIB:g} MiB away, and residual / noise floor "
    f"when it is {RHO_FACTOR:g} times the earlier one or its part, and one of them is above {RHO_LEAST:g}. "
    "Each is compared with the result at which its present level began."
)


class Found(NamedTuple):
    """A change from one point to another.

    before, after: the values as text. factor: their ratio; None for a verdict.
    previous: the last point before that has this measure; what changed since then may be the cause.
    """

    measure: str
    effect: str
    previous: Point
    point: Point
    before: str
    after: str
    factor: float | None


def changes(points: Sequence[Point]) -> Iterator[Found]:
    """All changes in the points of a series, which are in the order of time."""
    yield from _verdicts(points)
    yield from _levels(RATIO, [each for each in points if _has_interval(each)], _ratio)
    yield from _levels(PEAK, [each for each in points if each.peak_rss_mib], _memory("peak_rss_mib"))
    yield from _levels(PEAK_OF_DEVICE, [each for each in points if each.gpu_peak_mib], _memory("gpu_peak_mib"))
    yield from _levels(RHO, [each for each in points if each.rho is not None], _rho)


def _verdicts(points: Sequence[Point]) -> Iterator[Found]:
    previous: Point | None = None
    for point in points:
        if point.verdict is None and point.status == "ok":
            continue  # nothing was judged
        if previous is not None and point.outcome != previous.outcome:
            was, now = (RANKS.get(each.outcome, NO_RESULT) for each in (previous, point))
            good = Verdict.EQUAL.rank
            effect = WORSE if now > max(was, good) else BETTER if max(now, good) < was else OTHER
            yield Found(VERDICT, effect, previous, point, previous.outcome, point.outcome, None)
        previous = point


Compare = Callable[[Point, Point], "tuple[str, str, str, float] | None"]


def _levels(measure: str, points: Sequence[Point], compare: Compare) -> Iterator[Found]:
    """Yield the changes of one measure.

    compare: compares the point at which the level began with a later one. It returns (effect, before, after, factor), or None when
        nothing changed.
    """
    begun = previous = None
    for point in points:
        if begun is None or previous is None or not _alike(measure, begun, point):
            begun = point
        else:
            found = compare(begun, point)
            if found is not None:
                effect, before, after, factor = found
                yield Found(measure, effect, previous, point, before, after, factor)
                begun = point
        previous = point


def _alike(measure: str, one: Point, other: Point) -> bool:
    """Whether the measure means the same in both points."""
    if measure == RATIO:
        return one.baseline == other.baseline
    return measure != RHO or one.floor == other.floor


def _has_interval(point: Point) -> bool:
    return point.compared and None not in (point.ratio, point.low, point.high) and bool(point.ratio)


def _ratio(old: Point, new: Point) -> tuple[str, str, str, float] | None:
    assert None not in (old.ratio, old.low, old.high, new.ratio, new.low, new.high)  # ``_has_interval``
    slower, faster = new.low > old.high, new.high < old.low  # type: ignore[operator]
    was, now = old.ratio or 0.0, new.ratio or 0.0
    if not (slower or faster) or abs(math.log(now) - math.log(was)) <= SAME:
        return None
    before, after = (numbers.time_ratio(each.ratio or 0.0, each.low, each.high) for each in (old, new))
    return (WORSE if slower else BETTER), before, after, now / was


def _memory(name: str) -> Compare:
    """The comparison of a size. name: of its field."""

    def compare(old: Point, new: Point) -> tuple[str, str, str, float] | None:
        was, now = getattr(old, name), getattr(new, name)
        if max(was, now) < MEMORY_FACTOR * min(was, now) or abs(now - was) < MEMORY_MIB:
            return None
        return (WORSE if now > was else BETTER), f"{numbers.whole(was)} MiB", f"{numbers.whole(now)} MiB", now / was

    return compare


def _rho(old: Point, new: Point) -> tuple[str, str, str, float] | None:
    was, now = old.rho or 0.0, new.rho or 0.0
    if max(was, now) <= RHO_LEAST or max(was, now) < RHO_FACTOR * min(was, now):
        return None
    return OTHER, numbers.ratio(was), numbers.ratio(now), now / was if was else math.inf


def differing(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """The conditions that differ, each as a phrase: those of the row first, then those of the baseline and the reference."""
    said: dict[
        tuple[str, str | None, str | None], str
    ] = {}  # the reference and the baseline often have the row's own version
    for name in sorted({*old, *new}, key=lambda name: (" of the " in name, name)):
        was, now = old.get(name), new.get(name)
        if was != now:
            said.setdefault(
                (name.partition(" of the ")[0], was, now), f"{name} {was or 'nothing'} → {now or 'nothing'}"
            )
    return tuple(_shortened(phrase) for phrase in said.values())


def _shortened(phrase: str) -> str:
    """A digest by its first digits."""
    words = phrase.split(" ")
    return " ".join(word[:19] + "…" if word.startswith("sha256:") and len(word) > 20 else word for word in words)
