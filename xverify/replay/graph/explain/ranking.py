"""What the quantisation of each layer of a graph costs at the outputs, against the float graph that it was made from.

A value of the quantised graph corresponds to a value of the reference (see ``corresponding``). Each corresponding value is computed
as the quantised graph says from the reference's own values, with the quantised weights, and with every quantisation between these
values and it. The difference from the reference's value is the local error of the layer that makes it. Then the rest of the
reference is computed with this value in place of its own: the change of the outputs is the cost of the layer, that is, the error of
the outputs when this layer alone is quantised. Layers are computed in float64, and the rest of the reference in float32, whose
rounding is thousands of times smaller than that of 8 bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....results.precision import LayerCost
from ..describe import Types
from ..evaluation import ERRORS, Computation, Evaluation, Pass, Scope, given
from ..judge.rounding import block_coarseness, coarseness, quantised_weights, weight_axis
from ..layers import QUANTISED_WEIGHTS, WEIGHTS
from ..model import Graph, Node
from ..operators.few_bits import FEW_BITS, Grid
from ..operators.quantized import real_of
from ..source import source
from ..values import PACKED, Named, convert, dtype_name, is_float
from .correspondence import Match, corresponding
from .segments import Pulled, Segment, decibels, relative, segments_of

ENOUGH = 40.0  # seconds of computing costs
WIDTH, FEW = 8, 4  # bits of a quantised weight, and of one of a packed type


@dataclass(frozen=True)
class Ranking:
    """The costs of the layers, the most expensive first. known: number of quantised layers. stopped: why some have no cost."""

    layers: tuple[LayerCost, ...]
    known: int
    stopped: str = ""


def rank(
    graph: Graph,
    reference: Graph,
    inputs: Mapping[str, Any],
    reference_inputs: Mapping[str, Any],
    enough: float = ENOUGH,
    clock: Callable[[], float] = time.monotonic,
) -> Ranking:
    """The layers of a quantised graph by their cost.

    graph: the quantised graph. inputs, reference_inputs: the same case under the names of both graphs.
    enough: seconds after which no further cost is computed; the layers of the largest local error come first.
    """
    matches = corresponding(graph, reference)
    segments = [each for each in segments_of(graph, matches) if each.quantised]
    types = Types(graph)
    known = sum(
        layer is not None and (layer.quantised or bool(layer.activations)) for layer in map(types.layer, graph.nodes)
    )
    if not segments:
        return Ranking(
            (), known, "no layer of the file has the name, the module or the order of a layer of the reference"
        )
    inputs, reference_inputs = _first_item(graph, inputs), _first_item(reference, reference_inputs)
    sweep = _Sweep(graph, reference, matches, inputs, reference_inputs)
    begun = clock()
    exact = sweep.exact()
    # A cost takes about half of an evaluation, because it begins in the middle.
    affordable = int(2 * enough / max(clock() - begun, 1e-3))
    chosen = frozenset(segment.match.own for segment in segments)
    if affordable < len(segments):
        local = sweep.run(segments, frozenset(), exact)
        chosen = frozenset(sorted(local, key=lambda own: -local[own].local)[:affordable])
    costs = sweep.run(segments, chosen, exact)
    layers = _by_cost(list(costs.values()))
    left = sum(each.cost is None for each in layers)
    late = ", which would take too long" if left <= len(segments) - affordable else ""
    return Ranking(layers, max(known, len(layers)), f"{left} layers have no cost{late}" if left else "")


def _by_cost(layers: Sequence[LayerCost]) -> tuple[LayerCost, ...]:
    """The layers with their shares of the power of all costs, the most expensive first."""
    power = sum(each.cost**2 for each in layers if each.cost is not None)
    shares = [each.cost**2 / power if each.cost is not None and power else None for each in layers]
    found = [replace(each, share=share) for each, share in zip(layers, shares)]
    return tuple(sorted(found, key=lambda each: (-1.0 if each.cost is None else each.cost, each.local), reverse=True))


def _first_item(graph: Graph, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first item of the inputs, where the file leaves the same dimension of all of them open, and it is their first one."""
    names = set()
    for name, array in inputs.items():
        if name not in graph.types or not graph.types[name].HasField("tensor_type") or not np.ndim(array):
            return inputs
        sizes = graph.types[name].tensor_type.shape.dim
        if not sizes or sizes[0].WhichOneof("value") == "dim_value":
            return inputs
        names.add((sizes[0].dim_param, np.shape(array)[0]))
    return {name: array[:1] for name, array in inputs.items()} if len(names) == 1 else inputs


class _Single(Pass):
    """Float32: it is several times faster than float64, and its rounding is far smaller than that of quantisation."""

    def given(self, data: Any, exact: Any) -> Any:
        return convert(data, np.float32)

    def outputs(self, computed: Computation, index: int, exact: list[Any]) -> list[Any]:
        return computed.outputs(index, np.float32)


@dataclass(frozen=True)
class _Sweep:
    """An evaluation of the reference, with the segments of the quantised graph computed as soon as their inputs are there."""

    graph: Graph
    reference: Graph
    matches: Mapping[str, Match]
    inputs: Mapping[str, Any]
    reference_inputs: Mapping[str, Any]
    single: Evaluation = field(default_factory=lambda: Evaluation([_Single()]))

    def exact(self) -> Named:
        """The floating-point outputs of the reference, in float32."""
        scope = Scope(self.reference, given(self.single, self.reference, self.reference_inputs), None, self.single)
        return self._outputs(scope, 0)

    def run(
        self, segments: Sequence[Segment], chosen: frozenset[str], exact: Mapping[str, Any]
    ) -> dict[str, LayerCost]:
        """Value of the quantised graph -> what the layer that makes it costs.

        chosen: values whose layer's cost is computed. exact: the outputs of the reference.
        """
        order = {name: index for index, node in enumerate(self.reference.nodes) for name in node.outputs}
        ready: dict[int, list[Segment]] = {}
        kept: dict[str, int] = {}  # value of the reference -> index of the node behind which no segment needs it
        for segment in segments:
            names = (segment.match.reference, *segment.needs)
            last = max(order.get(name, -1) for name in names)
            ready.setdefault(last, []).append(segment)
            kept.update({name: max(last, kept.get(name, -1)) for name in names})
        evaluation = Evaluation()
        scope = Scope(self.reference, given(evaluation, self.reference, self.reference_inputs), None, evaluation)
        found: dict[str, LayerCost] = {}
        waiting: dict[str, int] = {}
        for index, (node, freed) in enumerate(zip(self.reference.nodes, self.reference.freed)):
            scope.compute(node)
            for segment in ready.get(index, ()):
                made = self._local(segment, scope)
                if made is None:
                    continue
                cost, value = made
                name = segment.match.reference
                if segment.match.own in chosen and order[name] == index:
                    cost = self._cost(cost, scope, index, name, value, exact)
                found[segment.match.own] = cost
            waiting.update({name: kept.get(name, -1) for name in freed})
            scope.free(name for name, until in waiting.items() if until <= index)
            waiting = {name: until for name, until in waiting.items() if until > index}
        return found

    def _outputs(self, scope: Scope, start: int) -> Named:
        """The floating-point outputs of the reference in float32, computed from its node of this index on."""
        for node, freed in zip(self.reference.nodes[start:], self.reference.freed[start:]):
            scope.compute(node)
            scope.free(freed)
        values = {name: scope.get(name) for name in self.reference.outputs}
        return {name: value.exact for name, value in values.items() if value is not None and is_float(value.exact)}

    def _cost(
        self, cost: LayerCost, scope: Scope, index: int, name: str, value: Any, exact: Mapping[str, Any]
    ) -> LayerCost:
        """The change of the outputs when one value of the reference is replaced."""
        values = {**{own: each.exact for own, each in scope.values.items()}, name: value}
        changed = Scope(
            self.reference, {own: self.single.value(data) for own, data in values.items()}, None, self.single
        )
        try:
            outputs = self._outputs(changed, index + 1)
        except ERRORS:
            return cost
        away = {output: relative(outputs[output], exact[output]) for output in exact if output in outputs}
        if not away:
            return cost
        worst = max(away, key=lambda output: away[output])
        return replace(cost, cost=away[worst], sqnr=decibels(away[worst]), output=worst)

    # -- one layer ------------------------------------------------------------------------------------------------------

    def _local(self, segment: Segment, scope: Scope) -> tuple[LayerCost, Any] | None:
        """What a layer costs in its own result, and this result; None when it cannot be computed or has another shape."""
        target = scope.get(segment.match.reference)
        lazy = Pulled(self.graph, self.matches, self.inputs, scope)
        try:
            value, lowest = lazy.target(segment.match)
            if target is None or not is_float(target.exact) or np.shape(value) != np.shape(target.exact):
                return None
            weights, coarse, bits = self._weights(segment, lazy)
        except ERRORS:
            return None
        maker = self._layer(segment)
        value = np.maximum(value, lowest)
        wide, name = max(lazy.wide, default=(None, ""))
        away = relative(value, np.maximum(target.exact, lowest))
        return LayerCost(
            layer=maker.name,
            kind=maker.kind,
            module=source(maker).module,
            local=away,
            local_sqnr=decibels(away),
            weights_sqnr=weights,
            inputs_sqnr=min(lazy.inputs, default=None),
            coarse=coarse,
            wide=wide,
            wide_input=name,
            bits=bits,
        ), value

    def _layer(self, segment: Segment) -> Node:
        """The node of the reference that stands for a segment: its sum of products, or else the node that makes its value."""
        maker = self.reference.makers[segment.match.reference]
        if any(each.op in WEIGHTS for each in segment.nodes):
            return next((each for each in self.reference.line(maker) if each.op in WEIGHTS), maker)
        return maker

    def _weights(self, segment: Segment, lazy: Pulled) -> tuple[float | None, float | None, int]:
        """SQNR of the quantised weights of a layer, how much coarser their scale is than their values need, and their bits."""
        coarse, bits = None, WIDTH
        for node in segment.nodes:
            places, stored = quantised_weights(self.graph, node)
            if stored is None:
                continue
            if node.op in FEW_BITS:
                bits = node.get("bits", 4)
                coarse = max(block_coarseness(_grid(node, lazy)), coarse or 0.0)
                continue
            scale, zero = lazy.exact(node, places.scale), lazy.exact(node, places.zero)
            bits = FEW if dtype_name(stored.dtype) in PACKED else WIDTH
            wide = stored.astype(np.float64)
            factors = np.asarray(coarseness(node, wide, scale, zero, stored.dtype))
            steps = np.ones(1) if scale is None else np.asarray(scale, np.float64)
            if steps.size != factors.size:
                steps = np.ones(1)
            steps, factors = steps.reshape(-1), factors.reshape(-1)
            # The mean over channels, each with the power of its steps.
            found = math.sqrt(float(np.square(steps).sum()) / float(np.square(steps / factors).sum() or 1.0))
            coarse = max(found, coarse or 0.0)
        return self._weights_sqnr(segment, lazy), coarse, bits

    def _weights_sqnr(self, segment: Segment, lazy: Pulled) -> float | None:
        right = self._plain_weights(self.reference.makers[segment.match.reference])
        for node in segment.nodes:
            if node.op in FEW_BITS:
                values = _grid(node, lazy).values
                own = values.T if FEW_BITS[node.op].transposed else values
            elif node.op in QUANTISED_WEIGHTS and node.op != "DequantizeLinear":
                places = QUANTISED_WEIGHTS[node.op]
                weights, scale, zero = (lazy.exact(node, place) for place in (places.place, places.scale, places.zero))
                scale = Types(self.graph).factor(node) if places.scale is None else scale
                if scale is None:
                    continue
                own = real_of(weights, scale, zero, weight_axis(node, np.ndim(weights)))
            elif node.op in WEIGHTS:
                place = next((each for each in WEIGHTS[node.op] if each < len(node.inputs)), 0)
                own = lazy.exact(node, place)
            else:
                continue
            if right is not None and own is not None and np.shape(own) == np.shape(right):
                return decibels(relative(own, right))
        return None

    def _plain_weights(self, node: Node) -> Any:
        """The weights of the reference's layer that makes a value, behind a bias and an activation."""
        layer = next((each for each in self.reference.line(node) if each.op not in ("Add", "Relu", "Clip")), node)
        names = [layer.input(place) for place in WEIGHTS.get(layer.op, ())]
        found = next((self.reference.constants[name] for name in names if name in self.reference.constants), None)
        return None if found is None else found.astype(np.float64)


def _grid(node: Node, lazy: Pulled) -> Grid:
    """The weights of a few bits of a node."""
    few = FEW_BITS[node.op]
    given = [lazy.exact(node, place) if place in few.places else None for place in range(len(node.inputs))]
    return few.of(node, given)
