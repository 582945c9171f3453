"""Figures that people decide a deployment by: agreement of the best classes, divergence, signal-to-noise ratio, cosine similarity.

They stand beside the verdict and do not replace it. All arrays are compared in float64.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, nearest
from ..results.figures import Figures

Array = NDArray[Any]
FIGURES = {
    "top1": "share of items whose best class is the reference's best class",
    "top5": "share of items whose best class is among the reference's best five",
    "kl": "mean Kullback-Leibler divergence of the class probabilities from the reference's, in nats",
    "sqnr": "power of the reference / power of the difference, in decibels",
    "cosine": "cosine of the angle between the outputs, the smallest over items",
    "max_abs": "largest absolute difference, in the unit of the output",
}
CLASSES = 3  # an output of shape (items, classes, 1, ...) with at least so many classes is taken for class scores
RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def figures(pairs: Iterable[tuple[Array, Array]]) -> Figures:
    """The figures of one output over all input cases.

    pairs: (the reference's array, the candidate's array) of each case, of one shape. Arrays of whole numbers have only ``max_abs``.
    """
    signal = noise = largest = 0.0
    cosines: list[float] = []
    classes: list[tuple[Array, Array]] = []
    floating = True
    for reference, own in pairs:
        floating = floating and reference.dtype.kind == "f"
        right, given = reference.astype(np.float64), own.astype(np.float64)
        finite = np.isfinite(right) & np.isfinite(given)
        with np.errstate(invalid="ignore", over="ignore"):
            delta = np.where(finite, given - right, 0.0)
        signal += float(np.square(np.where(finite, right, 0.0)).sum())
        noise += float(np.square(delta).sum())
        largest = max(largest, float(np.abs(delta).max(initial=0.0)))
        if floating and right.ndim and right.size and finite.all():
            cosines.extend(_cosines(right, given))
        if floating and _are_scores(right) and finite.all():
            smallest = float(np.finfo(own.dtype).smallest_subnormal) if own.dtype.kind == "f" else 0.0
            classes.append(
                (right.reshape(len(right), -1), np.where(given == 0, smallest, given).reshape(len(right), -1))
            )
    if not floating:
        return Figures(max_abs=largest)
    top1, top5, kl = _classes(classes)
    sqnr = None if not signal else math.inf if not noise else 10 * math.log10(signal / noise)
    return Figures(top1, top5, kl, sqnr, min(cosines, default=None), largest)


def _are_scores(right: Array) -> bool:
    """Whether an output may be class scores: one vector an item, also with axes of length 1 behind it."""
    return right.ndim >= 2 and len(right) > 0 and right.shape[1] >= CLASSES and math.prod(right.shape[2:]) == 1


def _cosines(right: Array, given: Array) -> list[float]:
    """The cosine of every item; an item of which one side is zero has none."""
    a, b = (array.reshape(array.shape[0], -1) for array in (right, given))
    sizes = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    some = sizes > 0
    return [float(value) for value in (a[some] * b[some]).sum(axis=1) / sizes[some]]


def _classes(cases: list[tuple[Array, Array]]) -> tuple[float | None, float | None, float | None]:
    """(top-1 agreement, top-5 agreement, KL divergence); None without class scores, and top-5 with fewer than six classes."""
    if not cases:
        return None, None, None
    right, given = (np.concatenate(column) for column in zip(*cases))
    best = given.argmax(axis=1)
    top1 = float((best == right.argmax(axis=1)).mean())
    top5 = None
    if right.shape[1] > 5:
        five = np.argpartition(right, -5, axis=1)[:, -5:]
        top5 = float((five == best[:, None]).any(axis=1).mean())
    logs = _log_probabilities(right), _log_probabilities(given)
    with np.errstate(invalid="ignore"):
        terms = np.where(np.isneginf(logs[0]), 0.0, np.exp(logs[0]) * (logs[0] - logs[1]))
    return top1, top5, float(terms.sum(axis=1).mean())


def _log_probabilities(scores: Array) -> Array:
    """The logarithms of the class probabilities. scores: probabilities, when each row is one distribution; else logits."""
    if scores.min() >= 0 and np.allclose(scores.sum(axis=1), 1.0, atol=1e-3):
        with np.errstate(divide="ignore"):
            logs: Array = np.log(scores / scores.sum(axis=1, keepdims=True))
        return logs
    shifted = scores - scores.max(axis=1, keepdims=True)
    normal: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return normal


@dataclass(frozen=True)
class Condition:
    """One condition of --accept, e.g. ``top1>=0.99``. It must hold for every output that has the figure."""

    figure: str
    relation: str
    limit: float

    def __str__(self) -> str:
        return f"{self.figure}{self.relation}{self.limit:g}"


def conditions(text: str) -> tuple[Condition, ...]:
    """Read --accept. Raises UsageError for an unknown figure, and for anything that is no condition."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|>|<)\s*([-+.\de]+|inf)\s*", part)
        try:
            limit = float(match.group(3)) if match else math.nan
        except ValueError:
            match = None
        if match is None:
            raise UsageError(f"--accept {part!r}: write FIGURE>=NUMBER, e.g. --accept 'top1>=0.99,sqnr>=30'")
        if match.group(1) not in FIGURES:
            raise UsageError(
                f"--accept {part!r}: unknown figure {match.group(1)!r}{nearest(match.group(1), FIGURES)} "
                f"Known: {', '.join(FIGURES)}"
            )
        found.append(Condition(match.group(1), match.group(2), limit))
    return tuple(found)


def unmet(wanted: Iterable[Condition], outputs: Mapping[str, Figures]) -> list[str]:
    """A sentence about each condition that does not hold. A figure that no output has is a condition that does not hold.

    outputs: name of an output -> its figures.
    """
    found = []
    for condition in wanted:
        values = {name: getattr(each, condition.figure) for name, each in outputs.items()}
        known = {name: value for name, value in values.items() if value is not None}
        if not known:
            found.append(f"{condition}: no output has this figure ({FIGURES[condition.figure]})")
        for name, value in known.items():
            if not RELATIONS[condition.relation](value, condition.limit):
                found.append(f"{condition}: {condition.figure} of {name} is {value:.4g}")
    return found


def decided(wanted: Iterable[Condition], outputs: Mapping[str, Figures]) -> str:
    """The conditions, each with whether it holds and the value by which it was decided; "" without conditions.

    outputs: name of an output -> its figures.
    """
    says = []
    for condition in wanted:
        known = {name: getattr(each, condition.figure) for name, each in outputs.items()}
        known = {name: value for name, value in known.items() if value is not None}
        if not known:
            says.append(f"{condition} does not hold, because no output has this figure")
            continue
        least = condition.relation in (">=", ">")
        name = (min if least else max)(known, key=lambda each: known[each])
        holds = RELATIONS[condition.relation](known[name], condition.limit)
        says.append(f"{condition} {'holds' if holds else 'does not hold'}: {known[name]:.4g} ({name})")
    return "; ".join(says)
