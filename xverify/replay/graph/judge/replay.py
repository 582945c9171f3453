"""Computes every node of a graph again in float64 from the values that a runtime gave it, and judges what it returned.

The runtime must compute the nodes of the file one by one: its optimisations are off, because a fused node has no values inside.
What an optimised session computes is judged at the outputs of the graph, by their noise (see ``noise``).

Every node gets the runtime's own inputs, so that errors of earlier nodes do not count against it. A value that the runtime did
not give is computed here, in float64 and with its noise, and the node behind it is judged together with the one that made it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....float64.rounding import Noise
from ....results.verdicts import Verdict
from ....verdict.findings import OUTPUT, SATURATES, Finding
from ....verdict.limits import UNIT, growth
from ...tensors import Floors, NoiseOf, Place, change_of, judge, mean_squares
from ..evaluation import ERRORS, EXACT, OWN, Evaluation, Pass, Scope, given
from ..model import Graph, Node, UnsupportedOperator
from ..operators.few_bits import MOST, rounds_inputs
from ..operators.quantized import UNROUNDED
from ..operators.registry import Call
from ..operators.saturating import SATURATING, saturating
from ..operators.table import find
from ..values import UNITS, Named, Value, convert, dtype_of, exact_of, in_range, is_float, tensor, unit_roundoff
from .approximations import approximation
from .narrower import explained
from .perturbed import Perturbed
from .quantisation import judge_steps
from .terms import channel_axis, summed_terms

SAMPLES = 2  # perturbed evaluations of a node


@dataclass(frozen=True)
class GraphReport:
    """What the replay of a graph found.

    findings: one for each output of each node that was compared, in the order of the file. The layer is the name of the node, the
        kind its operator.
    compared: number of nodes with at least one finding.
    missing: names of nodes of which the runtime gave no output.
    unsupported: name of a node that cannot be computed in float64 -> why.
    """

    findings: tuple[Finding, ...]
    compared: int
    missing: tuple[str, ...] = ()
    unsupported: Mapping[str, str] = field(default_factory=dict)


def replay(
    graph: Graph,
    inputs: Mapping[str, Any],
    captured: Mapping[str, Any],
    seed: int = 0,
    samples: int = SAMPLES,
    channels_last: bool = False,
    steps: Mapping[str, float] | None = None,
) -> GraphReport:
    """Judge every node of a graph.

    inputs: the inputs of the run, by name.
    captured: name of a value -> the array that the runtime computed. It is asked for each name once, in the order of the file, so
        it may read arrays when they are needed.
    samples: number of perturbed evaluations of each node. channels_last: whether the channels of all images are the last axis.
    steps: name of a node -> what counts as the rounding of its quantised result beside that of floating-point arithmetic, in steps.
    """
    passes = [EXACT, *(Perturbed(Noise(seed + index)) for index in range(samples)), OWN]
    replayed = _Replay(graph, captured, passes, channels_last, steps or {})
    replayed.run(graph, given(replayed, graph, inputs))
    return GraphReport(tuple(replayed.findings), replayed.compared, tuple(replayed.left_out), replayed.unsupported)


class _Replay(Evaluation):
    """An evaluation that judges every node, and goes on from what the runtime returned, where a node was captured."""

    def __init__(
        self,
        graph: Graph,
        captured: Mapping[str, Any],
        passes: Sequence[Pass],
        channels_last: bool,
        steps: Mapping[str, float],
    ) -> None:
        super().__init__(passes)
        self.graph, self.captured, self.channels_last, self.least_steps = graph, captured, channels_last, steps
        self.terms: dict[str, int] = {}  # value that was not captured -> the length of the sums behind it
        self.findings: list[Finding] = []
        self.left_out: list[str] = []
        self.unsupported: dict[str, str] = {}
        self.compared = 0

    def step(self, node: Node, inputs: Sequence[Value | None], scope: Scope) -> list[Value]:
        if scope.outer is not None or scope.body is not self.graph:
            return super().step(node, inputs, scope)
        returned = self._returned(node)
        if any(value is not None and isinstance(value.exact, _Unknown) for value in inputs):
            outputs, why = [], "one of its inputs is not known"
        else:
            try:
                outputs, why = super().step(node, inputs, scope), ""
            except UnsupportedOperator as error:
                outputs, why = [], str(error)
            except ERRORS as error:
                outputs, why = [], f"node {node.name!r} ({node.kind}) cannot be computed in float64: {_line(error)}"
        if why:
            self.unsupported[node.name] = why
            outputs = [Value((_Unknown(),) * len(self.passes), None)] * len(node.outputs)
        else:
            self._judge(node, inputs, outputs, returned)
        return [self._next(name, value, returned) for name, value in zip(node.outputs, outputs)]

    def _next(self, name: str, value: Value, returned: Mapping[str, Any]) -> Value:
        """The value with which the evaluation goes on."""
        if name not in returned:
            return value
        returned_value = returned[name]
        fits = (
            isinstance(value.exact, _Unknown)
            or isinstance(returned_value, list)
            or np.shape(returned_value) == np.shape(value.exact)
        )
        return self.value(returned_value) if fits else value

    def _returned(self, node: Node) -> Named:
        """What the runtime returned for the outputs of a node."""
        return {name: _array(self.captured[name]) for name in node.outputs if name and name in self.captured}

    def _judge(
        self, node: Node, inputs: Sequence[Value | None], outputs: list[Value], returned: Mapping[str, Any]
    ) -> None:
        """Compare what a node returned with its exact outputs."""
        before = len(self.findings)
        terms = max([summed_terms(node, exact_of(inputs)), *(self.terms.get(name, 1) for name in node.inputs)])
        self.terms.update((name, terms) for name in node.outputs if name and name not in returned)
        for index, (name, value) in enumerate(zip(node.outputs, outputs)):
            if (
                name in returned
                and isinstance(returned[name], np.ndarray)
                and not _unknowable(inputs, value, returned[name])
            ):
                place = Place(node.name, 0, index, node.kind, OUTPUT)
                finding = self._finding(place, node, inputs, value, returned, index, terms)
                if finding.verdict > Verdict.EQUAL and node.op in SATURATING:
                    with saturating():
                        other = _computed_again(node, inputs, index, value)
                        again = self._finding(place, node, inputs, other, returned, index, terms)
                    finding = replace(finding, reason=SATURATES) if again.verdict == Verdict.EQUAL else finding
                self.findings.append(finding)
        if len(self.findings) > before:
            self.compared += 1
        else:
            self.left_out.append(node.name)

    def _finding(
        self,
        place: Place,
        node: Node,
        inputs: Sequence[Value | None],
        value: Value,
        returned: Mapping[str, Any],
        index: int,
        terms: int,
    ) -> Finding:
        returned_value = returned[node.outputs[index]]
        if not isinstance(value.exact, np.ndarray):
            return place.incomparable("the runtime returned an array, and the file says a sequence", terms)
        if returned_value.shape != value.exact.shape:
            return place.incomparable(
                f"shape {list(returned_value.shape)}, and the file says {list(value.exact.shape)}", terms
            )
        if value.is_float != (dtype_of(returned_value) in UNITS) or (
            not value.is_float and returned_value.dtype != value.dtype
        ):
            return place.incomparable(f"type {returned_value.dtype}, and the file says {value.dtype}", terms)
        if not returned_value.size:
            return place.identical(terms)
        quantised = (node.domain, node.op) in UNROUNDED or node.op == "DynamicQuantizeLinear"
        if quantised and not value.is_float:
            step = self.least_steps.get(node.name, 0.0)
            return judge_steps(place, node, inputs, returned_value, index, returned, terms, step)
        if not value.is_float:
            same = np.array_equal(returned_value, value.exact)
            wrong = f"{int(np.sum(returned_value != value.exact))} of {returned_value.size} whole numbers differ"
            return place.identical(terms) if same else place.incomparable(wrong, terms)
        finding = self._judge_floats(place, node, inputs, value, returned_value, terms)
        if finding.verdict > Verdict.EQUAL and finding.rounding is None and inputs and inputs[0] is not None:
            finding = replace(finding, rounding=approximation(node, inputs[0].exact, value.exact, returned_value))
        return finding

    def _judge_floats(
        self, place: Place, node: Node, inputs: Sequence[Value | None], value: Value, found: Any, terms: int
    ) -> Finding:
        axis = max(0, found.ndim - 1) if self.channels_last else channel_axis(node, found.ndim)
        exact, kappa = tensor(value.exact), growth(terms)
        sizes = mean_squares(exact, axis)
        unit = max(unit_roundoff(value.dtype), UNIT)
        samples = [tensor(data) for data in value.by_pass[1:-1] if data is not value.exact]
        error = tensor(convert(value.by_pass[-1], np.float64))
        own = mean_squares(error, axis, exact=exact)
        # The limits round the result to float32; what a narrower type rounds more is added here. The passes are perturbed κ times
        # as much as one rounding, and the limits multiply by κ, too.
        more = (unit**2 - UNIT**2) / 3
        noise = _samples([change_of(each) for each in samples], kappa, math.sqrt(more)), change_of(error)
        if samples:
            squares = np.mean([mean_squares(each, axis, exact=exact) for each in samples], axis=0)
            floors = Floors(exact, squares / kappa**2 + more * sizes, own, sizes, noise=noise)
        else:
            floors, terms = Floors(exact, None, own + more * sizes, sizes, noise=noise), 1
        returned = tensor(found if found.dtype == np.float32 else convert(found, np.float64))
        floors.exact = in_range(exact, value.dtype, returned)
        finding = judge(place, returned, floors, terms, axis)
        unit = max(unit, 0.5 / MOST) if rounds_inputs(node) else unit
        return replace(explained(finding, place, node, inputs, returned, floors, axis), unit=unit)


def _computed_again(node: Node, inputs: Sequence[Value | None], index: int, value: Value) -> Value:
    """An output of a node, computed again, with the noise of the first time. value: that of the first time."""
    implementation = find(node)
    assert implementation is not None
    made = Call.of(node, inputs).outputs(implementation, exact_of(inputs))[index]
    passes = (each + (made - value.exact) if value.is_float else made for each in value.by_pass)
    return Value(tuple(passes), value.dtype)


def _samples(changes: Sequence[NoiseOf], kappa: float, more: float) -> NoiseOf:
    """The noise that some samples show together / κ, with a share of the value itself."""

    def noise(places: Any, values: Any) -> Any:
        found = more * np.abs(values)
        for each in changes:
            found = np.hypot(found, each(places, values) / (kappa * math.sqrt(len(changes))))
        return found

    return noise


class _Unknown:
    """In the place of a value that was neither computed nor captured."""


def _unknowable(inputs: Sequence[Value | None], value: Value, found: Any) -> bool:
    """Whether a runtime may have had other inputs than those that it gave, and an output has other infinite values for that.

    ONNX Runtime computes float16 in float32 on processors. A value beyond the range of float16 is then infinite only where it is
    given out.
    """
    overflowed = (each for each in inputs if each is not None and each.dtype == np.float16)
    if not any(isinstance(each.exact, np.ndarray) and np.isinf(each.exact).any() for each in overflowed):
        return False
    exact = value.exact
    return (
        is_float(exact)
        and np.shape(found) == exact.shape
        and not np.array_equal(np.isfinite(found), np.isfinite(exact))
    )


def _array(data: Any) -> Any:
    return [np.asarray(item) for item in data] if isinstance(data, (list, tuple)) else np.asarray(data)


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
