"""Figures that people decide a deployment by."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """The figures of one output over all input cases; None where a figure has no meaning for it.

    top1, top5: share of items whose best class is the reference's best class, or among its best five.
    kl: mean Kullback-Leibler divergence of the class probabilities from the reference's, in nats.
    sqnr: power of the reference / power of the difference, in decibels.
    cosine: cosine of the angle between the outputs, the smallest over items.
    max_abs: largest absolute difference, in the unit of the output.
    says: an item that is zero on one side alone, or why there are no figures; "" where there is nothing to say.
    """

    top1: float | None = None
    top5: float | None = None
    kl: float | None = None
    sqnr: float | None = None
    cosine: float | None = None
    max_abs: float | None = None
    says: str = ""


def shown_limit(limit: float) -> str:
    """A detection limit with one digit, rounded up: an error of this size would have been seen."""
    if not 0 < limit < math.inf:
        return f"{limit:g}"
    step = 10.0 ** math.floor(math.log10(limit))
    return f"{math.ceil(limit / step - 1e-9) * step:.1g}"


def shown_ratio(ratio: float, digits: int = 2) -> str:
    """A ratio with this number of significant digits, three from 100 on, and separators for thousands: ``0.44``, ``1,640,000``."""
    large = math.isfinite(ratio) and abs(ratio) >= 100
    return f"{float(f'{ratio:.3g}'):,.0f}" if large else f"{ratio:.{digits}g}"
