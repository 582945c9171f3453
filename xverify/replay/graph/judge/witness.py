"""A witness that a comparison with a graph can fail: with other weights, its outputs must leave the limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ....verdict.ratios import all_within_limits
from ....workload.probe import drawn_anew
from ..evaluation import ERRORS, Evaluation, given
from ..layers import KINDS, QUANTISED_WEIGHTS, Kind
from ..model import Graph
from ..values import Value, is_float
from .noise import OutputNoise

FEW = 8  # values of a vector that may be no weight: the scales of a resize, a mean and a deviation of channels


class _Redrawn(Evaluation):
    """An exact evaluation in which weights have other values: all of them, or only one. drawn: whether there was such a weight."""

    def __init__(self, seed: int, only: Any = None) -> None:
        super().__init__()
        self.random, self.only, self.drawn = np.random.default_rng(seed), only, False

    def constant(self, data: Any) -> Value:
        if not _is_weight(data) or (self.only is not None and data is not self.only):
            return super().constant(data)
        self.drawn = True
        return self.value(drawn_anew(data, self.random))


def _is_weight(data: Any) -> bool:
    return is_float(data) and (data.ndim >= 2 or data.size > FEW)


def unmoved(
    graph: Graph, inputs: Mapping[str, Any], outputs: Mapping[str, OutputNoise], seed: int, only: Any = None
) -> bool:
    """Whether all outputs stay within the limits when the weights are drawn anew.

    inputs: an array for each input by name. outputs: of the graph with its own weights. only: the one weight that is drawn anew.
    A graph without weights or finite values, and one that cannot be evaluated with others, says nothing.
    """
    evaluation = _Redrawn(seed, only)
    try:
        found = evaluation.run(graph, given(evaluation, graph, inputs))
    except ERRORS:
        return False
    compared = [
        (value.exact, np.asarray(outputs[name].exact), np.asarray(outputs[name].noise))
        for name, value in zip(graph.outputs, found)
        if value is not None and name in outputs and isinstance(value.exact, np.ndarray)
    ]
    return evaluation.drawn and all_within_limits(compared)


def hidden(
    graph: Graph, inputs: Mapping[str, Any], outputs: Mapping[str, OutputNoise], seed: int, most: float
) -> tuple[tuple[str, ...], int] | None:
    """The weights in which a fault would not show, and the number of all weights.

    With such a weight drawn anew, all outputs stay within the limits. The scales of quantised arrays are no weights.
    most: evaluations that may be made; None where one for each weight is more. The other arguments are those of ``unmoved``.
    """
    scales = set(_scales(graph))
    weights = {name: data for name, data in graph.constants.items() if _is_weight(data) and name not in scales}
    if len(weights) > most:
        return None
    return tuple(name for name in weights if unmoved(graph, inputs, outputs, seed, weights[name])), len(weights)


def _scales(graph: Graph) -> Iterator[str]:
    """The names of the values that some node takes as a scale or as a zero point."""
    for _, node in graph.walk():
        kind = KINDS.get(node.op, Kind())
        steps = (*kind.steps, *([QUANTISED_WEIGHTS[node.op]] if node.op in QUANTISED_WEIGHTS else []))
        places = [*(kind.result or ()), *(place for each in steps for place in (each.scale, each.zero))]
        yield from filter(None, map(node.input, places))
