"""The formats of numbers in every report. A missing number is written as a dash."""

from __future__ import annotations

import math

from ..results.figures import shown_limit

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
    """An error, e.g. ``4.0e-07``."""
    return ABSENT if value is None else f"{value:.1e}"


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


def layer_ratio(value: float | None) -> str:
    """R or C of a layer (residual / noise floor). None, infinity and NaN are written as ``∞``."""
    if value is None or not math.isfinite(value):
        return "∞"
    return "0" if value == 0 else whole(value) if value >= 1000 else significant(value, 2)


def check_ratio(value: float) -> str:
    """The residual / noise floor of a training-parity check: two significant digits; without decimal places from 100 to 10,000."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "NaN"
    return f"{value:.0f}" if 100 <= value < 10_000 else significant(value, 2)


def duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours: ``40 s``, ``9 min``, ``11 h``."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{math.ceil(seconds)} s"
