"""Quantised weights whose values no rounding to steps gives, where a format does not tell how large the steps are.

A step is at most the largest value divided by the largest whole number of the type. A weight is only judged where most of its
values are the reference's, so that it is certain which weight of the reference it comes from, and that nothing is folded into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .canonical import Array
from .closeness import fit_of, scaled_by
from .origins import turned
from .relations import Relation
from .stored import EPSILONS, Stored, factors

STEPS = 2.0  # steps up to which a value may be away; tools that do not round to the nearest one stay within it
MOST = 0.6  # share of values that must be the reference's. A folded norm leaves up to 0.3 of them there, by chance
FACTOR = 0.1  # a factor that is at least so far from 1 is a fault of the scale
FOLDED = 0.9  # share of values that a norm explains which is folded into the weight


def beyond_steps(relations: Sequence[Relation], file: Stored, reference: Stored) -> Iterator[str]:
    """A sentence on each quantised weight that is wrong. relations: of the file's weights to the reference's."""
    for each in relations:
        if each.name not in file.quantised or each.other not in reference.arrays:
            continue
        array, right = file.arrays[each.name], reference.arrays[each.other]
        fit = fit_of(array, right) if array.ndim > 1 and array.size == right.size else None
        if fit is not None:
            right, largest = turned(right, fit.order, array.shape), 7 if "4" in file.quantised[each.name] else 127
            says = _wrong(array, right, largest)
            if says and not _is_folded(array, right, largest, reference):
                yield f"{file.called(each.name)}: {says}"


def _wrong(array: Array, right: Array, largest: int) -> str:
    """What is wrong with a quantised weight; "" for one that is right or has another origin. largest: whole number of its type."""
    step = _step(right, largest)
    away = np.abs(array.astype(np.float64) - right)
    factor = scaled_by(array, right)
    if abs(factor - 1) >= FACTOR and float((np.abs(array - factor * right) <= step).mean()) >= MOST:
        return f"all of its values are x {factor:.3g}"
    wrong = away > step
    if not wrong.any() or float(wrong.mean()) > 1 - MOST:
        return ""
    place = tuple(map(int, np.unravel_index(int(np.argmax(away)), away.shape)))
    return (
        f"{int(wrong.sum())} of its {array.size} values are more than {STEPS:g} steps away from the reference's; the worst, "
        f"{list(place)}, is {array[place]:.4g}, and the reference has {right[place]:.4g}"
    )


def _step(right: Array, largest: int) -> float:
    return STEPS * float(np.abs(right).max(initial=0.0)) / largest


def _is_folded(array: Array, right: Array, largest: int, reference: Stored) -> bool:
    """Whether a weight is right with a norm of the reference folded into it. Which layer a norm follows, not every file tells."""
    for norm in reference.norms:
        for eps in EPSILONS if norm.eps is None else (norm.eps,):
            factor = factors(reference, norm, eps)
            for axis in (axis for axis, size in enumerate(array.shape) if size == factor.size):
                folded = right * factor.reshape([-1 if each == axis else 1 for each in range(array.ndim)])
                if float((np.abs(array - folded) <= _step(folded, largest)).mean()) >= FOLDED:
                    return True
    return False
