"""What is known of speeds that the machine was too busy to measure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..results.records import Result
from ..timing.bounds import Bounded, orders
from . import numbers
from .rows import rate_unit


def bounded(result: Result) -> Iterator[str]:
    """What is known of speeds that could not be measured, and of their order."""
    rate = rate_unit(result.item)
    known = [
        Bounded(row.subject, possible(row.speed.at_least), possible(row.speed.at_most))
        for row in result.rows
        if row.speed
    ]
    for each in known:
        if each.at_least is not None:
            least = numbers.bound(each.at_least, above=False)
            yield f"{each.subject}: at least {least} {rate} (fastest calls), not a verdict"
    for fast, slow in orders(known):
        most = numbers.bound(slow.at_most, above=True)
        yield f"{fast.subject} is faster than {slow.subject}: at most {most} {rate}, and no disturbance explains the difference"


def possible(speed: float | None) -> float | None:
    """The speed; None for one that no run measures, which a result file that was edited may have."""
    return speed if speed is not None and 0 < speed < math.inf else None
