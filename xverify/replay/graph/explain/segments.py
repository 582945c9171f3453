"""The parts of a quantised graph between corresponding values, and what they compute from the reference's values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..evaluation import Evaluation, Scope, given
from ..kinds import QUANTISING, is_range_of_function
from ..model import Body, Graph, Node
from ..operators.quantized import real, real_of, returns_steps, rounded
from ..operators.registry import Call
from ..values import Value, exact_of
from .correspondence import Match

QUANTISED = QUANTISING | {
    "DequantizeLinear",
    "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
    "MatMulNBits",
    "MatMulBnb4",
    "GatherBlockQuantized",
}


@dataclass(frozen=True)
class Segment:
    """The nodes of the quantised graph that make one corresponding value from others.

    match: the value. nodes: in no order. needs: names of the reference's values that it is computed from.
    """

    match: Match
    nodes: list[Node]
    needs: set[str]

    @property
    def quantised(self) -> bool:
        """Whether something is quantised between the values."""
        return any(node.op in QUANTISED for node in self.nodes)


def segments_of(graph: Graph, matches: Mapping[str, Match]) -> list[Segment]:
    """The parts of a graph, each with one corresponding value at its end and others at its beginning."""
    found = []
    for match in matches.values():
        nodes = graph.ancestors(match.own, matches)
        needs = {matches[name].reference for node in nodes for name in node.uses if name in matches}
        found.append(Segment(match, nodes, needs))
    return found


class Pulled(Scope):
    """The values of the quantised graph, each computed when it is asked for, from the reference's values.

    inputs: SQNR of every quantised value that was computed.
    wide: (how many times wider its range is than its values, its name) of every quantised value whose range is in the file.
    """

    def __init__(self, graph: Graph, matches: Mapping[str, Match], inputs: Mapping[str, Any], reference: Scope) -> None:
        evaluation = Evaluation()
        super().__init__(graph, given(evaluation, graph, inputs), None, evaluation)
        self.matches, self.reference = matches, reference
        self.inputs: list[float] = []
        self.wide: list[tuple[float, str]] = []

    def value(self, name: str) -> Value:
        match = self.matches.get(name)
        if name not in self.values and name not in self.body.constants:
            if match is not None:
                self.values[name] = self._forced(match)
            else:
                self._compute(self.body.makers[name])
        return super().value(name)

    def exact(self, node: Node, place: int | None) -> Any:
        """An input of a node; None when it is left out."""
        value = self.get(node.input(place))
        return None if value is None else value.exact

    def target(self, match: Match) -> tuple[Any, float]:
        """A corresponding value in real numbers, computed as the quantised graph says, without the rounding of the result itself.

        With it comes the smallest number that the graph lets through: 0 where the quantiser behind it has the place of a ReLU.
        """
        node = self.body.makers[match.own]
        if not match.scale:
            self._compute(node)
            return self.values[match.own].exact, self._lowest(match.own)
        inputs = [self.get(name) for name in node.inputs]
        run = real(node)
        if run is None or not returns_steps(node):
            self._compute(node)
            steps = self.values[match.own].exact
        else:
            steps = Call.of(node, inputs).outputs(run, exact_of(inputs))[0]
        scale, zero = self._parameters(match)
        value = (np.asarray(steps).astype(np.float64) - zero) * scale
        return value, 0.0 if np.all(zero == np.iinfo(self._kind(match)).min) else -math.inf

    def _lowest(self, name: str) -> float:
        """0 for a value that only a quantiser without negative numbers takes: it has the place of a ReLU; else minus infinity."""
        users = self.body.users.get(name, ())
        if len(users) != 1 or users[0].op != "QuantizeLinear" or len(users[0].inputs) < 3:
            return -math.inf
        zero = self.exact(users[0], 2)
        return 0.0 if np.all(zero == np.iinfo(zero.dtype).min) else -math.inf

    def _parameters(self, match: Match) -> tuple[Any, Any]:
        zero = self.value(match.zero).exact.astype(np.float64) if match.zero else 0.0
        return self.value(match.scale).exact.astype(np.float64), zero

    def _kind(self, match: Match) -> Any:
        return self.body.constants[match.zero].dtype if match.zero in self.body.constants else np.dtype(np.uint8)

    def _forced(self, match: Match) -> Value:
        """The reference's value, in the steps of the quantised graph where that has steps."""
        value = self.reference.value(match.reference)
        if not match.scale:
            return self.evaluation.value(value.exact)
        scale, zero = self._parameters(match)
        kind = self._kind(match)
        steps = rounded(value.exact / scale + zero, kind)
        # Where nothing lies below zero, the quantiser has taken the place of a ReLU.
        exact = np.maximum(value.exact, 0.0) if np.all(zero == np.iinfo(kind).min) else value.exact
        self._note((steps.astype(np.float64) - zero) * scale, exact)
        self._measure(self.reference.body, match.reference, exact, (scale, zero, kind))
        return self.evaluation.value(steps)

    def _compute(self, node: Node) -> None:
        inputs, outputs = self.compute(node)
        constant = not node.inputs or node.inputs[0] in self.body.constants
        if node.op in ("QuantizeLinear", "DynamicQuantizeLinear") and not constant and inputs[0] is not None:
            exact, zero = (
                inputs[0].exact,
                outputs[0].exact.dtype.type(0) if len(inputs) < 3 or inputs[2] is None else inputs[2].exact,
            )
            if node.op == "QuantizeLinear" and np.all(zero == np.iinfo(outputs[0].exact.dtype).min):
                exact = np.maximum(exact, 0.0)
            self._note(self._dequantised(node, inputs, outputs), exact)
            if node.op == "QuantizeLinear":
                kind = outputs[0].exact.dtype
                self._measure(self.body, node.inputs[0], exact, (exact_of(inputs)[1], zero.astype(np.float64), kind))

    def _measure(self, graph: Body, name: str, exact: Any, parameters: tuple[Any, Any, Any]) -> None:
        """Note how many times wider the range of a quantised value is than its values. parameters: scale, zero point and type."""
        scale, zero, kind = parameters
        if np.size(scale) != 1 or kind.kind not in "iu" or not np.size(exact):
            return
        limits, step, offset = np.iinfo(kind), float(np.reshape(scale, ())), float(np.reshape(zero, ()))
        low, high = (limits.min - offset) * step, (limits.max - offset) * step
        if is_range_of_function(graph, name, low, high):
            return
        filled = max(float(np.max(exact)) / high if high > 0 else 0.0, float(np.min(exact)) / low if low < 0 else 0.0)
        if math.isfinite(filled) and filled > 0:
            self.wide.append((1.0 / filled, name))

    def _dequantised(self, node: Node, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> Any:
        dynamic = node.op == "DynamicQuantizeLinear"
        scale, zero = exact_of(outputs)[1:] if dynamic else (*exact_of(inputs)[1:], None)[:2]
        return real_of(outputs[0].exact, scale, zero, node.get("axis", 1))

    def _note(self, quantised: Any, exact: Any) -> None:
        found = decibels(relative(quantised, exact))
        if found is not None:
            self.inputs.append(found)


def relative(found: Any, exact: Any) -> float:
    """rms of the difference / rms of the exact values; 0 for two arrays of zeros."""
    difference = float(np.square(np.nan_to_num(found - exact)).sum())
    size = float(np.square(np.nan_to_num(exact)).sum())
    if not difference:
        return 0.0
    return math.sqrt(difference / size) if size else math.inf


def decibels(relative: float) -> float | None:
    """A relative error as SQNR; None when there is no error, or nothing that it could be compared with."""
    return -20.0 * math.log10(relative) if 0.0 < relative < math.inf else None
