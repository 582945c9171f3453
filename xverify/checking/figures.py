"""Figures that people decide a deployment by: agreement of the best classes, divergence, signal-to-noise ratio, cosine similarity.

They stand beside the verdict and do not replace it. All arrays are compared in float64.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, nearest
from ..results.figures import Figures
from ..verdict.sizes import norm

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


def figures(pairs: Iterable[tuple[Array, Array]], cases: Sequence[int] | None = None) -> Figures:
    """The figures of one output over all input cases.

    pairs: (the reference's array, the file's array) of each case, of one shape. Arrays of whole numbers have only ``max_abs``.
    cases: the numbers of the cases, for what is said about them; None: 0, 1, 2, ...
    """
    signals, noises, largest = [0.0], [0.0], 0.0
    cosines: list[float] = []
    one_sided: list[str] = []
    classes: list[tuple[Array, Array]] = []
    floating = True
    for case, (reference, own) in zip(itertools.count() if cases is None else cases, pairs):
        floating = floating and reference.dtype.kind == "f"
        # A value that is infinite or missing on both sides has no difference; one side alone makes the row INVALID.
        right, given = _finite(reference, own)
        with np.errstate(over="ignore"):
            delta = given - right
        signals.append(norm(right))
        noises.append(norm(delta))
        largest = max(largest, float(np.abs(delta).max(initial=0.0)))
        if not floating:
            continue
        if right.size:
            found, zeros = _cosines(right, given)
            cosines.extend(found)
            one_sided += [f"item {item} of case {case} is zero in {side} alone" for item, side in zeros]
        if _are_scores(right):
            smallest = float(np.finfo(own.dtype).smallest_subnormal) if own.dtype.kind == "f" else 0.0
            infinite = np.isneginf(reference) & np.isneginf(own)  # a class that a mask takes out
            right, given = np.where(infinite, reference, right), np.where(given == 0, smallest, given)
            classes.append((right.reshape(len(right), -1), np.where(infinite, own, given).reshape(len(right), -1)))
    if not floating:
        return Figures(max_abs=largest)
    top1, top5, kl = _classes(classes)
    says = one_sided[0] + (f", and so are {len(one_sided) - 1} more" if len(one_sided) > 1 else "") if one_sided else ""
    sqnr = _decibels(math.hypot(*signals), math.hypot(*noises))
    return Figures(top1, top5, kl, sqnr, min(cosines, default=None), largest, says)


def _finite(reference: Array, own: Array) -> tuple[Array, Array]:
    """Both arrays in float64, with 0 for values that are not finite in one of them."""
    right, given = reference.astype(np.float64), own.astype(np.float64)
    finite = np.isfinite(right) & np.isfinite(given)
    return (right, given) if finite.all() else (np.where(finite, right, 0.0), np.where(finite, given, 0.0))


def _decibels(signal: float, noise: float) -> float:
    """The ratio of two powers, whose roots are given, in decibels; infinite without a difference."""
    if not noise:
        return math.inf
    return 20 * (math.log10(signal) - math.log10(noise)) if signal else -math.inf


def _are_scores(right: Array) -> bool:
    """Whether an output may be class scores: one vector an item, also with axes of length 1 behind it."""
    return right.ndim >= 2 and len(right) > 0 and right.shape[1] >= CLASSES and math.prod(right.shape[2:]) == 1


def _cosines(right: Array, given: Array) -> tuple[list[float], list[tuple[int, str]]]:
    """The cosine of every item, and the items of which one side alone is zero: (item, side).

    Such an item has no cosine, and counts as 0; one that is zero on both sides agrees, and counts as 1.
    """
    items = right.shape[0] if right.ndim else 1
    a, b = (_unit_largest(array.reshape(items, -1)) for array in (right, given))
    sizes = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    zero = (~a.any(axis=1), ~b.any(axis=1))
    cosines = np.divide((a * b).sum(axis=1), sizes, out=(zero[0] & zero[1]).astype(np.float64), where=sizes > 0)
    sides = [
        (int(item), "the reference" if zero[0][item] else "the file") for item in np.flatnonzero(zero[0] ^ zero[1])
    ]
    return [float(value) for value in cosines], sides


def _unit_largest(rows: Array) -> Array:
    """Every row divided by its largest value, so that no square underflows or overflows; rows of zeros as they are."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    scaled: Array = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    return scaled


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
    # It is never negative, and its rounding may be.
    return top1, top5, float(np.maximum(0.0, terms.sum(axis=1).mean()))


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
    """One condition of --accept, e.g. ``top1>=0.99`` for every output, or ``scores:top1>=0.99`` for one.

    output: the output that it is for; "": every output.
    """

    figure: str
    relation: str
    limit: float
    output: str = ""

    def __str__(self) -> str:
        return f"{self.output}{':' if self.output else ''}{self.figure}{self.relation}{self.limit:g}"

    def is_for(self, output: str) -> bool:
        """Whether it says something about this output."""
        return self.output in ("", output)

    def holds(self, figures: Figures) -> bool:
        """Whether it holds for these figures. An output without the figure fails, unless nothing in it differs."""
        value = getattr(figures, self.figure)
        return figures.max_abs == 0.0 if value is None else RELATIONS[self.relation](value, self.limit)


def conditions(text: str) -> tuple[Condition, ...]:
    """Read --accept. Raises UsageError for an unknown figure, and for anything that is no condition."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?:(.+):)?\s*(\w+)\s*(>=|<=|>|<)\s*([-+.\de]+|inf)\s*", part)
        try:
            limit = float(match[4]) if match else math.nan
        except ValueError:
            match = None
        if match is None:
            raise UsageError(
                f"--accept {part!r}: write FIGURE>=NUMBER, e.g. --accept 'top1>=0.99,sqnr>=30', or OUTPUT:FIGURE>=NUMBER"
            )
        if match[2] not in FIGURES:
            raise UsageError(
                f"--accept {part!r}: unknown figure {match[2]!r}{nearest(match[2], FIGURES)} Known: {', '.join(FIGURES)}"
            )
        found.append(Condition(match[2], match[3], limit, match[1] or ""))
    return tuple(found)


def unmet(wanted: Iterable[Condition], outputs: Mapping[str, Figures]) -> list[str]:
    """A sentence about each condition that does not hold, and about each output that no condition decides on.

    outputs: name of an output of the reference -> its figures; an output that the file lacks has none.
    """
    wanted, sentences = list(wanted), list[str]()
    for condition in wanted:
        mine = {name: each for name, each in outputs.items() if condition.is_for(name)}
        if not mine:
            known = f"; the outputs are {', '.join(outputs)}" if outputs else ""
            sentences.append(f"{condition}: there are no figures of {condition.output or 'any output'}{known}")
        for name, each in mine.items():
            if not condition.holds(each):
                sentences.append(f"{condition}: {_told(condition, name, each)}")
    decided_on = {name for name in outputs for each in wanted if each.is_for(name)}
    sentences += [f"no condition decides on the output {name}" for name in outputs if wanted and name not in decided_on]
    return sentences


def _told(condition: Condition, name: str, figures: Figures) -> str:
    """The value of a figure, or why there is none."""
    value = getattr(figures, condition.figure)
    if value is not None:
        says = f" ({figures.says})" if figures.says and condition.figure == "cosine" else ""
        return f"{condition.figure} of {name} is {value:.4g}{says}"
    if figures.max_abs is None:
        return f"{name} has no figures: {figures.says}" if figures.says else f"{name} has no figures"
    if condition.output:
        return f"{name} has no {condition.figure} ({FIGURES[condition.figure]})"
    step = f"name the outputs that it is for, e.g. OUTPUT:{condition.figure}{condition.relation}{condition.limit:g}"
    return f"{name} has no {condition.figure} ({FIGURES[condition.figure]}); {step}"


def decided(wanted: Iterable[Condition], outputs: Mapping[str, Figures]) -> str:
    """The conditions, each with whether it holds and the output and value by which it was decided; "" without conditions.

    outputs: as for ``unmet``.
    """
    says = []
    for condition in wanted:
        mine = {name: each for name, each in outputs.items() if condition.is_for(name)}
        failed = next((name for name in mine if not condition.holds(mine[name])), None)
        known = {name: getattr(each, condition.figure) for name, each in mine.items()}
        missing = failed if failed is not None and known[failed] is None else None
        known = {name: value for name, value in known.items() if value is not None}
        if missing is not None or not known:
            holds = bool(mine) and failed is None
            why = "nothing differs" if holds else f"{missing or condition.output or 'no output'} has no such figure"
            says.append(f"{condition} {'holds' if holds else 'does not hold'}, because {why}")
            continue
        least = condition.relation in (">=", ">")
        name = (min if least else max)(known, key=lambda each: known[each])
        says.append(f"{condition} {'holds' if failed is None else 'does not hold'}: {known[name]:.4g} ({name})")
    return "; ".join(says)
