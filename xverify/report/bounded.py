"""What is known of speeds that the machine was too busy to measure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from ..results.records import Result
from ..timing.bounds import Bounded, orders
from . import numbers
from .rows import rate_unit

MOST = 8  # subjects in the sentence on the first screen of a page


def bounded(result: Result) -> Iterator[str]:
    """What is known of speeds that could not be measured, and of their order."""
    for subject, least in _least(result):
        yield f"{subject}: {least} (fastest calls), not a verdict"
    yield from _orders(result)


def in_short(result: Result) -> str:
    """The same in one sentence."""
    known = [f"{subject} {least}" for subject, least in _least(result)]
    more = [f"and {len(known) - MOST} more"] if len(known) > MOST else []
    says = ", ".join([*known[:MOST], *more])
    return "; ".join(filter(None, [f"{says} (fastest calls)" if says else "", *islice(_orders(result), MOST)]))


def _least(result: Result) -> Iterator[tuple[str, str]]:
    """(subject, the speed that it has at least)."""
    for each in _known(result):
        if each.at_least is not None:
            yield each.subject, f"at least {numbers.bound(each.at_least, above=False)} {rate_unit(result.item)}"


def _orders(result: Result) -> Iterator[str]:
    """Sentences about two subjects whose order is known."""
    rate = rate_unit(result.item)
    for fast, slow in orders(_known(result)):
        most = numbers.bound(slow.at_most, above=True)
        yield f"{fast.subject} is faster than {slow.subject}: at most {most} {rate}, and no disturbance explains the difference"


def _known(result: Result) -> list[Bounded]:
    return [
        Bounded(row.subject, possible(row.speed.at_least), possible(row.speed.at_most))
        for row in result.rows
        if row.speed
    ]


def possible(speed: float | None) -> float | None:
    """The speed; None for one that no run measures, which a result file that was edited may have."""
    return speed if speed is not None and 0 < speed < math.inf else None
