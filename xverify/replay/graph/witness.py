"""A witness that a comparison with a graph can fail: with other weights, its outputs must leave the limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...verdict.ratios import within_limits
from ...workload.probe import drawn_anew
from .evaluation import Evaluation, given
from .model import Graph, UnsupportedOperator
from .noise import OutputNoise
from .values import Value, is_float

FEW = 8  # values of a vector that may be no weight: the scales of a resize, a mean and a deviation of channels


class _Redrawn(Evaluation):
    """An exact evaluation in which every weight has other values. drawn: whether there was a weight."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random, self.drawn = np.random.default_rng(seed), False

    def constant(self, data: Any) -> Value:
        if not is_float(data) or (data.ndim < 2 and data.size <= FEW):
            return super().constant(data)
        self.drawn = True
        return self.value(drawn_anew(data, self.random))


def unmoved(graph: Graph, inputs: Mapping[str, Any], outputs: Mapping[str, OutputNoise], seed: int) -> bool:
    """Whether all outputs stay within the limits when the weights are drawn anew.

    inputs: an array for each input by name. outputs: of the graph with its own weights.
    A graph without weights, and one that cannot be evaluated with others, says nothing.
    """
    evaluation = _Redrawn(seed)
    try:
        found = evaluation.run(graph, given(evaluation, graph, inputs))
    except (ArithmeticError, IndexError, KeyError, RuntimeError, TypeError, ValueError, UnsupportedOperator):
        return False
    pairs = [
        (value.exact, outputs[name])
        for name, value in zip(graph.outputs, found)
        if value is not None and name in outputs and isinstance(value.exact, np.ndarray)
    ]
    return (
        evaluation.drawn
        and bool(pairs)
        and all(within_limits(other, np.asarray(own.exact), np.asarray(own.noise)) for other, own in pairs)
    )
