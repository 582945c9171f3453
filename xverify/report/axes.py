"""Axes of charts: places in a drawing of WIDTH units, and the labels beside them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

WIDTH, TOP = 640.0, 14.0


@dataclass(frozen=True)
class Tick:
    """A place on an axis, and the text beside it."""

    place: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A chart.

    subject, says: what it is of, and what it shows. bottom: the lower end of its area.
    down, across: labels of its axes. limits: dashed lines. paths: class in the style sheet -> path.
    """

    subject: str = ""
    says: str = ""
    bottom: float
    down: tuple[Tick, ...] = ()
    across: tuple[Tick, ...] = ()
    limits: tuple[Tick, ...] = ()
    paths: dict[str, str] = field(default_factory=dict)


def linear(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """A place for every number, between two places for two numbers."""
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def logarithmic(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """A place for every number; those outside of the ends, and NaN, are drawn at an end."""

    def place(value: float) -> float:
        inside = high if math.isnan(value) else min(max(value, low), high)
        return start + math.log(inside / low) / math.log(high / low) * (end - start)

    return place


def steps(most: float) -> list[float]:
    """Three to six round numbers from 0 up to this one."""
    size = 10.0 ** math.floor(math.log10(most)) if most > 0 else 1.0
    step = next(each * size for each in (0.2, 0.5, 1.0, 2.0) if most / (each * size) <= 6)
    return [index * step for index in range(int(most / step) + 1)]


def between(low: float, high: float) -> list[float]:
    """Three to eight round numbers between two numbers."""
    span = high - low
    size = 10.0 ** math.floor(math.log10(span)) if span > 0 else 1.0
    step = next(each * size for each in (0.2, 0.5, 1.0, 2.0, 5.0) if span / (each * size) <= 7)
    first = math.ceil(low / step)
    return [round(index * step, 12) for index in range(first, math.floor(high / step) + 1)]


def dot(x: float, y: float) -> str:
    """The path of a dot."""
    return f"M{x:.1f} {y:.1f}h0"


def upright(x: float, y: float) -> str:
    """The path of a short stroke from top to bottom. A drawing that is stretched sideways does not change it."""
    return f"M{x:.1f} {y - 5:.1f}v10"


def power_label(power: int) -> str:
    """The label of a power of ten."""
    return {-1: "0.1", 0: "1"}.get(power, f"10{str(power).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}")
