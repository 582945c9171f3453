"""Tells weights whose channels are scaled, with the inverse in another layer, as equalisation before quantising does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kinds import QUANTISERS
from ..layers import BIAS, FAMILIES
from ..model import Graph
from ..values import is_float
from .quantised_weights import Weight, takes_steps

ROUNDS = 12  # of the alternating fit of two factors
FITS = 0.98  # share of the values that the factors must explain
NEAR = 0.05  # relative: how far a product of factors may be from constant
TRIVIAL = 0.02  # factors that vary by less are none


@dataclass(frozen=True)
class _Factors:
    """A weight as that of the reference, times a factor for each output and one for each input."""

    weight: Weight
    outputs: Any
    inputs: Any


def equalised(pairs: Sequence[tuple[Weight, Any]], graph: Graph, reference: Graph) -> set[int]:
    """The identities of the weights that differ from the reference's by factors, whose inverses stand elsewhere in the file.

    pairs: weights that differ, each with the values of the reference.
    """
    found = [
        each for each in (_fit(weight, right) for weight, right in pairs if weight.place != BIAS) if each is not None
    ]
    known = [factors for each in found for factors in (each.outputs, each.inputs)] + _floats(graph, reference)
    excused = {
        id(each.weight): each.weight.layer
        for each in found
        if all(_is_trivial(factors) or _has_inverse(factors, known) for factors in (each.outputs, each.inputs))
    }
    layers = {id(layer) for layer in excused.values()}
    biases = {id(weight) for weight, _ in pairs if weight.place == BIAS and id(weight.layer) in layers}
    return set(excused) | biases


def _fit(weight: Weight, right: Any) -> _Factors | None:
    """The factors of a weight; None where no factors explain it, or there is but one of them."""
    if right.ndim < 2:
        return None
    matrix = FAMILIES.get(weight.layer.op) == "matmul"
    out = (0 if weight.layer.get("transB", 0) else right.ndim - 1) if matrix else 0
    own, theirs = (np.moveaxis(each, out, 0) for each in (weight.values, right))
    own, theirs = (each.reshape(each.shape[0], each.shape[1], -1) for each in (own, theirs))
    both, power = (own * theirs).sum(2), np.square(theirs).sum(2)
    outputs, inputs = np.ones(both.shape[0]), np.ones(both.shape[1])
    for _ in range(ROUNDS if both.shape[1] > 1 else 1):
        outputs = _ratio(both @ inputs, power @ np.square(inputs))
        if both.shape[1] > 1:
            inputs = _ratio(outputs @ both, np.square(outputs) @ power)
    step = np.moveaxis(np.broadcast_to(weight.step, right.shape), out, 0).reshape(own.shape)
    fits = np.abs(own - theirs * outputs[:, None, None] * inputs[:, None]) <= 1.01 * step
    if np.mean(fits) < FITS or min(outputs.min(), inputs.min()) <= 0 or (_is_trivial(outputs) and _is_trivial(inputs)):
        return None
    return _Factors(weight, outputs, inputs)


def _ratio(above: Any, below: Any) -> Any:
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), 1.0)


def _floats(graph: Graph, reference: Graph) -> list[Any]:
    """What the file's float vectors are in relation to those of the same name in the reference, and those that it has alone."""
    found = []
    scales = {name for node in graph.nodes if node.op in QUANTISERS or takes_steps(node) for name in node.inputs}
    for name, array in graph.constants.items():
        if name in scales or not is_float(array) or array.size < 2 or array.size != max(array.shape):
            continue
        other = reference.constants.get(name)
        mine = array.reshape(-1).astype(np.float64)
        if other is not None and other.shape == array.shape:
            mine = _ratio(mine, other.reshape(-1).astype(np.float64))
        if (mine > 0).all():
            found.append(mine)
    return found


def _is_trivial(factors: Any) -> bool:
    return bool(np.max(factors) / np.min(factors) - 1.0 <= TRIVIAL)


def _has_inverse(factors: Any, known: Sequence[Any]) -> bool:
    """Whether known factors, one or two of them, undo these."""
    same = [each for each in known if each.shape == factors.shape and each is not factors and not _is_trivial(each)]
    left = [factors * each for each in same]
    if any(_is_constant(each) for each in left):
        return True
    return any(_is_constant(first * other) for place, first in enumerate(left) for other in same[place + 1 :])


def _is_constant(product: Any) -> bool:
    return bool(np.max(product) / np.min(product) - 1.0 <= NEAR)
