"""What can be said of a speed on a machine that is too busy to measure it: bounds of the undisturbed speed, and no verdict.

A disturbed call is never faster than an undisturbed one. So the fastest calls bound the undisturbed speed from below. They are
timed in pieces of about a millisecond, because a block of 60 ms is rarely left alone on a busy machine. The pieces follow each
other without a pause in series that last as long as a block, so that the clock frequency is that of sustained work, and every call
has another input than the call before. Not the fastest piece counts but the fastest tenth, which a short rise of the clock
frequency does not make, and MARGIN is left for differences between processes and for the drift that the noise gate allows.

A bound from above needs to know what disturbance explains: the time that threads waited for a core, the time that the hypervisor
took, and a core, caches and clock that others share, which CONTENTION allows for. When the slowest that one subject can be
undisturbed is faster than the fastest that another can be, their order is known.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .plan import BLOCK_SECONDS

PIECE_SECONDS = 1e-3  # of calls in a piece; reading the clock takes less than a thousandth of it
SERIES = 8  # series of pieces of each subject
MOST_SECONDS = 2.0  # no further series begins after this time
FASTEST = 0.1  # share of the pieces that are faster than the time that counts
MARGIN = (
    0.05  # by which the stated speed is lower than that of the fastest pieces: the drift that the noise gate allows
)
CONTENTION = 2.0  # how many times faster a core may be when no other thread shares it, its caches and its clock


@dataclass(frozen=True)
class Series:
    """Pieces that were timed without a pause. seconds: of each piece. calls: in a piece. explained: seconds of disturbance."""

    seconds: tuple[float, ...]
    calls: int
    explained: float


@dataclass(frozen=True)
class Bounds:
    """Bounds of the seconds of an undisturbed call.

    fastest: those of the fastest pieces. least: what disturbance cannot explain; None where it can explain everything.
    """

    fastest: float
    least: float | None


@dataclass(frozen=True)
class Bounded:
    """Bounds of a subject's speed in items per second; None where there is none."""

    subject: str
    at_least: float | None
    at_most: float | None


def pieces(seconds_per_call: float) -> tuple[int, int]:
    """(calls in a piece, pieces in a series). seconds_per_call: an estimate."""
    calls = max(1, math.ceil(PIECE_SECONDS / max(seconds_per_call, 1e-9)))
    return calls, max(1, math.ceil(BLOCK_SECONDS / max(calls * seconds_per_call, 1e-9)))


def bounds(series: Sequence[Series]) -> Bounds:
    """The bounds from all series of a process run; at least one."""
    fastest = low([seconds / each.calls for each in series for seconds in each.seconds])
    calls = sum(each.calls * len(each.seconds) for each in series)
    unexplained = math.fsum(math.fsum(each.seconds) - each.explained for each in series)
    return Bounds(fastest, unexplained / calls / CONTENTION if unexplained > 0 else None)


def low(times: Sequence[float]) -> float:
    """The time that the fastest tenth does not exceed; at least one time."""
    ordered = sorted(times)
    return ordered[max(0, math.ceil(FASTEST * len(ordered)) - 1)]


def at_least(fastest: Sequence[float], batch: int) -> float | None:
    """Items per second that an undisturbed subject computes at least. fastest: seconds of a call, of each process run."""
    return (1 - MARGIN) * batch / statistics.median(fastest) if fastest else None


def orders(found: Sequence[Bounded]) -> Iterator[tuple[Bounded, Bounded]]:
    """(the faster one, the slower one) of every two subjects whose order no disturbance explains."""
    for one in found:
        for other in found:
            if one.at_least is not None and other.at_most is not None and one.at_least > other.at_most:
                yield one, other
