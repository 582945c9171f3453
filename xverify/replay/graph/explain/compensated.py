"""Tells weights whose steps were chosen for the result of their layer, as GPTQ does, and biases corrected for those weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..evaluation import ERRORS, evaluate
from ..layers import BIAS
from ..model import Graph, Node
from ..operators.table import computed
from ..values import Named
from .partners import Partners, is_turned
from .quantised_weights import Weight
from .step_causes import cause_of_all

LAYERS = {"Conv": 1, "Gemm": -1, "MatMul": -1}  # operators of layers -> the axis of the channels of their results
# Of drawn layers with 3, 4 and 8 bits that GPTQ quantised, 2% of the values or more were no nearest ones, and none was more than
# 1.7 steps away. The errors of their results were at most 1.2 times those with the nearest steps, and those of a channel 2.0 times.
CHOSEN = 0.01  # share of the values that must not be the nearest ones; a tool that rounds to the nearest has none
FARTHEST = 3.0  # steps that a value may be from the reference's
WORSE, WORST = 1.4, 2.5  # how many times larger the error of all channels may be, and that of one
CORRECTED = 0.5  # rms of the mean errors of all channels with a bias / the same of its change
Pairs = Sequence[tuple[Weight, Any]]


def compensated(wrong: Pairs, every: Pairs, partners: Partners, cases: Sequence[Mapping[str, Any]]) -> set[int]:
    """The identities of the wrong weights and biases with which the results of their layers are as near as with the nearest steps.

    wrong: weights with the values of the reference, from which they differ. every: those that do not differ, too.
    cases: inputs of the reference.
    """
    layers = {id(weight): partners.layer(weight.layer) for weight, _ in wrong}
    names = {other.inputs[0] for other in layers.values() if other is not None and other.op in LAYERS}
    try:
        inputs = [_values(partners.reference, names, case) for case in cases] if names else []
    except ERRORS:
        return set()
    matrices = {id(weight.layer): (weight, right) for weight, right in every if weight.place == 1}
    found = set()
    for weight, right in wrong:
        other = layers[id(weight)]
        matrix = matrices.get(id(weight.layer))
        if other is None or other.op not in LAYERS or matrix is None:
            continue
        errors = _Errors(other, *matrix, [each[other.inputs[0]] for each in inputs])
        if errors.are_corrected(weight.values - right) if weight.place == BIAS else errors.are_small():
            found.add(id(weight))
    return found


def _values(reference: Graph, names: set[str], case: Mapping[str, Any]) -> Named:
    """The exact values of these names."""
    found = {name: np.asarray(case[name], np.float64) for name in names if name in case}
    evaluate(reference, case, lambda _, outputs: found.update({name: outputs[name] for name in names & set(outputs)}))
    return found


class _Errors:
    """What the quantised weight of a layer changes in its result. other: the layer of the reference. inputs: what it takes."""

    def __init__(self, other: Node, weight: Weight, right: Any, inputs: Sequence[Any]) -> None:
        self.other, self.weight, self.right, self.inputs = other, weight, right, inputs

    def of(self, change: Any) -> Any:
        """(channels, samples): what a change of the weight changes."""
        array = change.T if is_turned(self.weight.layer, 1) != is_turned(self.other, 1) else change
        made = [np.moveaxis(computed(self.other, [x, array])[0], LAYERS[self.other.op], 0) for x in self.inputs]
        return np.concatenate([each.reshape(len(each), -1) for each in made], 1)

    def are_small(self) -> bool:
        """Whether the error of each channel is as small as with the nearest steps, and no mistake explains the values."""
        weight, right = self.weight, self.right
        own, step = weight.values - right, np.maximum(weight.step, np.finfo(float).tiny)
        away = np.abs(own) / step
        least, most = np.minimum(weight.low, weight.high), np.maximum(weight.low, weight.high)
        if away.max() > FARTHEST or np.mean(away > 0.51) < CHOSEN or cause_of_all(weight, right):
            return False
        nearest = np.clip(least + np.rint((right - least) / step) * step, least, most)
        mine, best = (np.sqrt(np.mean(np.square(self.of(each)), 1)) for each in (own, nearest - right))
        whole = np.linalg.norm(mine) <= WORSE * np.linalg.norm(best)
        return bool(whole and np.all(mine <= WORST * best + 1e-3 * np.max(best)))

    def are_corrected(self, change: Any) -> bool:
        """Whether a change of the bias makes the mean error of the channels far smaller, up to the error of these means."""
        errors = self.of(self.weight.values - self.right)
        noise = float(np.sum(np.var(errors, 1))) / errors.shape[1]
        left = float(np.sum(np.square(errors.mean(1) + change)))
        return left <= CORRECTED**2 * float(np.sum(np.square(change))) + 2 * noise
