"""The formats of numbers in every report. A missing number is written as a dash."""

from __future__ import annotations

import math

from ..results.figures import shown_limit, shown_ratio

ABSENT = "-"


def figure(value: float | None) -> str:
    """Four significant digits, with separators for thousands: ``142,900``, ``6.602``."""
    if value is None:
        return ABSENT
    return f"{float(f'{value:.4g}'):,.0f}" if value >= 1000 else f"{value:.4g}"


def bound(value: float | None, above: bool) -> str:
    """A bound with two significant digits, rounded to the safe side. above: whether it bounds from above."""
    if value is None:
        return ABSENT
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return figure((math.ceil if above else math.floor)(value / step) * step)


def published(value: float) -> str:
    """A published figure, with at most five significant digits: ``2,169``, ``80.5``."""
    return f"{float(f'{value:.5g}'):,}".removesuffix(".0")


def seconds(value: float | None) -> str:
    """Three significant digits, never with an exponent: ``0.00127``."""
    return ABSENT if value is None else f"{float(f'{value:.3g}'):.6f}".rstrip("0").rstrip(".")


def significant(value: float | None, digits: int = 3) -> str:
    """A number with this number of significant digits."""
    return ABSENT if value is None else f"{value:.{digits}g}"


def whole(value: float | None) -> str:
    """A number without decimal places, with separators for thousands."""
    return ABSENT if value is None else f"{value:,.0f}"


def decimals(value: float | None, places: int = 2) -> str:
    """A number with this number of decimal places."""
    return ABSENT if value is None else f"{value:.{places}f}"


def error(value: float | None) -> str:
    """An error with two significant digits: ``4.0e-07``, ``1.8``, ``1,200``."""
    if value is None or not math.isfinite(value):
        return ABSENT if value is None else str(value)
    return f"{value:.1e}" if 0 < abs(value) < 0.01 else shown_ratio(value)


def limit(value: float | None) -> str:
    """A detection limit, rounded up to one digit: ``3e-06``. 0, of whole numbers, means that any difference shows."""
    return ABSENT if value is None else shown_limit(value)


def interval(value: str, low: str, high: str) -> str:
    """A written value and the two ends of its interval."""
    return f"{value} ({low}–{high})"


def time_ratio(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """A ratio of times, with its interval when both ends are known: ``1.100 (1.080–1.120)``."""
    text = decimals(ratio, 3)
    return text if low is None or high is None else interval(text, decimals(low, 3), decimals(high, 3))


def ratio(value: float | None) -> str:
    """A residual / noise floor: two significant digits, three from 100 on: ``0.44``, ``18``, ``1,640,000``. None is ``∞``."""
    if value is None or not math.isfinite(value):
        return "NaN" if value is not None and math.isnan(value) else "∞"
    return shown_ratio(value)


def duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours: ``40 s``, ``9 min``, ``11 h``."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{math.ceil(seconds)} s"
