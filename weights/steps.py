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
# A bias of 32 bits has so small steps that a right one is near the reference's. One of few steps has few values that are near.
FEW = 8  # values of a bias; of fewer, one factor explains many by chance
NEAR, FAR = 0.01, 0.1  # of the largest value: how near equal values are, and from where on others are wrong


def beyond_steps(relations: Sequence[Relation], file: Stored, reference: Stored) -> Iterator[str]:
    """A sentence on each quantised weight and bias that is wrong. relations: of the file's weights to the reference's."""
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
    yield from _wrong_biases(relations, file, reference)


def _wrong_biases(relations: Sequence[Relation], file: Stored, reference: Stored) -> Iterator[str]:
    """A sentence on each bias in whole numbers without a partner that is nearly one of the reference's without a partner."""
    free = {each.other for each in relations if each.kind == "missing"}
    possible = list(_biases(reference, free))
    for each in relations:
        if each.kind == "extra" and file.quantised.get(each.name) == "int32":
            array = file.arrays[each.name].reshape(-1).astype(np.float64)
            found = ((other, _wrong_bias(array, right)) for other, right in possible if right.size == array.size)
            other, says = next((pair for pair in found if pair[1]), ("", ""))
            if says:
                yield f"{file.called(each.name)}, compared with the reference's {other}: {says}"


def _biases(reference: Stored, free: set[str]) -> Iterator[tuple[str, Array]]:
    """The arrays of one axis of the reference that have no partner, and what a norm without one makes of them when it is folded."""
    of_norms = {name for norm in reference.norms for name in (norm.gamma, norm.beta, norm.mean, norm.var)}
    names = [name for name in reference.arrays if name in free - of_norms and reference.arrays[name].ndim == 1]
    plain = [(name, reference.arrays[name].astype(np.float64)) for name in names]
    yield from plain
    for norm in reference.norms:
        if norm.mean in free:
            for eps in EPSILONS if norm.eps is None else (norm.eps,):
                factor = factors(reference, norm, eps)
                shift = -reference.arrays[norm.mean] * factor + (reference.arrays[norm.beta] if norm.beta else 0.0)
                biases = [array for _, array in plain if array.shape == factor.shape]
                yield from ((f"bias with {norm.name} folded in", shift + factor * array) for array in (0.0, *biases))


def _wrong_bias(array: Array, right: Array) -> str:
    """What is wrong with a bias; "" for one that has another origin."""
    sizes = np.abs(right)
    largest = float(sizes.max(initial=0.0))
    if right.size < FEW or np.ptp(sizes) < FAR * largest or not array.any():  # a layer without a bias has one of zeros
        return ""
    factor = scaled_by(array, right)
    if abs(factor - 1) >= FACTOR and np.abs(array - factor * right).max() <= NEAR * largest * abs(factor):
        return f"all of its values are x {factor:.3g}"
    away, counted = np.abs(array - right), sizes >= FAR * largest
    wrong = away > FAR * largest
    if not wrong.any() or float((away[counted] <= NEAR * largest).mean()) < MOST:
        return ""
    place = int(np.argmax(away))
    return (
        f"{int(wrong.sum())} of its {array.size} values are wrong; the worst, [{place}], is {array[place]:.4g}, and the reference "
        f"has {right[place]:.4g}"
    )


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
