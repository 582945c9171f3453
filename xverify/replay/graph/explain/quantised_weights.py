"""The weights and biases that a graph stores as whole numbers, and the real numbers that they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np

from ..describe import Types
from ..judge.rounding import weight_axis
from ..kinds import MOVES
from ..layers import BIAS, KINDS, Kind, Steps
from ..model import Graph, Node, UnsupportedOperator
from ..operators.few_bits import FEW_BITS
from ..operators.quantized import along, blocks
from ..operators.registry import Call
from ..operators.table import computed
from ..values import whole_limits


@dataclass(frozen=True)
class Weight:
    """A constant in whole numbers, as a layer takes it.

    name: of the constant. layer: the node that takes it. place: which input it is, in the operator on real numbers.
    values: the real numbers that it stands for. step: what one whole number more adds to each. low, high: what the smallest and the
        largest number of its type stand for. These three have the shape of the values, or go with it.
    """

    name: str
    layer: Node
    place: int
    values: Any
    step: Any
    low: Any
    high: Any

    def through(self, node: Node, more: list[Any]) -> Weight:
        """The weight behind a node that copies it. more: further inputs of the node."""

        def copied(array: Any) -> Any:
            return computed(node, [np.array(np.broadcast_to(array, self.values.shape)), *more])[0]

        values, step, low, high = map(copied, (self.values, self.step, self.low, self.high))
        return replace(self, values=values, step=step, low=low, high=high)


def quantised_weights(graph: Graph) -> Iterator[Weight]:
    """The weights and biases of a graph that are whole numbers with a constant scale, each constant once."""
    reader = _Reader(graph)
    seen: set[str] = set()
    for node in graph.nodes:
        if node.op == "DequantizeLinear" or node.op in MOVES:
            continue  # the node behind it takes the weight
        for found in reader.of(node):
            if found.name not in seen:
                seen.add(found.name)
                yield found


def unread(graph: Graph, read: set[str]) -> list[str]:
    """Constants of whole numbers that layers take in a form which is not read here. read: names of those that are."""
    found = {}
    for node in graph.nodes:
        if (
            node.domain
            and not takes_steps(node)
            and not read & set(node.inputs)
            and node.op not in ("QuantizeLinear", "DequantizeLinear")
        ):
            for name in node.inputs:
                array = graph.constants.get(name)
                if array is not None and array.ndim > 1 and array.dtype.itemsize == 1 and array.dtype != bool:
                    found[name] = f"{name} of {node.name}"
    return list(found.values())


def takes_steps(node: Node) -> bool:
    """Whether a node takes quantised arrays."""
    return bool(KINDS.get(node.op, Kind()).steps)


class _Reader:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.types, self.makers = graph, Types(graph), graph.makers

    def of(self, node: Node) -> Iterator[Weight]:
        """The quantised weights that a node takes."""
        kind = KINDS.get(node.op, Kind())
        weights = [self._weight(node, steps) for steps in kind.steps]
        if kind.bias is not None:
            weights.append(self._bias(node, *kind.bias))
        if node.op == "Gather":
            weights.append(self._table(node))
        if node.op in FEW_BITS:
            weights.append(self._blocks(node))
        elif not kind.steps:
            weights += [self._dequantised(node, place, name) for place, name in enumerate(node.inputs)]
        yield from (each for each in weights if each is not None)

    def _constant(self, node: Node, place: int | None) -> Any:
        return self.graph.constants.get(node.input(place))

    def _weight(self, node: Node, places: Steps) -> Weight | None:
        steps, zeros = self._constant(node, places.place), self._constant(node, places.zero)
        size = self._constant(node, places.scale) if places.scale is not None else self.types.factor(node)
        if steps is None or size is None or (zeros is None and node.input(places.zero)):
            return None
        axis = weight_axis(node, steps.ndim) if steps.ndim else 0
        offset = 0.0 if zeros is None else along(zeros, steps.ndim, axis)
        return _made(node.inputs[places.place], node, places.real, steps, along(size, steps.ndim, axis), offset)

    def _bias(self, node: Node, place: int, *scales: int) -> Weight | None:
        """A bias in whole numbers, whose scale is that of the products."""
        steps = self._constant(node, place)
        first, second = (self._constant(node, scale) for scale in scales)
        if steps is None or first is None or second is None:
            return None
        size = first.astype(np.float64) * second.astype(np.float64) * node.get("alpha", 1.0)
        return _made(node.inputs[place], node, BIAS, steps, along(size, steps.ndim, steps.ndim - 1), 0.0)

    def _table(self, node: Node) -> Weight | None:
        """A table of whole numbers, of which the selected rows become real numbers."""
        steps = self._constant(node, 0)
        behind = [user for user in self.graph.users.get(node.outputs[0], ()) if user.op == "DequantizeLinear"]
        if steps is None or not behind:
            return None
        scale, zero = self._constant(behind[0], 1), self._constant(behind[0], 2)
        if scale is None or scale.size != 1:
            return None
        return _made(node.inputs[0], node, 0, steps, along(scale, 0, 0), 0.0 if zero is None else along(zero, 0, 0))

    def _blocks(self, node: Node) -> Weight | None:
        """Weights of a few bits, as the operator on real numbers takes them."""
        few, constants = FEW_BITS[node.op], self.graph.constants
        named = [node.inputs[place] for place in few.places if node.input(place)]
        if any(name not in constants for name in named):
            return None
        try:
            grid = few.of(node, [constants.get(name) for name in node.inputs])
        except UnsupportedOperator:
            return None
        ends = ((end - grid.zero) * grid.scale for end in (grid.low, grid.high))
        turned = few.transposed and node.get("transB", 1)
        found = (each.T if turned else each for each in (grid.values, np.abs(grid.scale) * grid.gap, *ends))
        return Weight(named[0], node, few.real, *found)

    def _dequantised(self, node: Node, place: int, name: str) -> Weight | None:
        """A constant behind DequantizeLinear, and perhaps behind nodes that copy it."""
        copied = list(takewhile(lambda each: each.op in MOVES, self.graph.line(self.makers.get(name))))
        maker = self.makers.get(copied[-1].inputs[0] if copied else name)
        if maker is None or maker.op != "DequantizeLinear":
            return None
        steps, scale = self._steps(maker.inputs[0]), self._constant(maker, 1)
        zero = self._constant(maker, 2)
        more = [[self.graph.constants.get(each) for each in other.inputs[1:]] for other in copied]
        if steps is None or scale is None or any(each is None for given in more for each in given):
            return None
        call = Call.of(maker)
        offset = 0.0 if zero is None else blocks(call, zero, steps)
        stored = self.makers[maker.inputs[0]].inputs[0] if maker.inputs[0] in self.makers else maker.inputs[0]
        weight = _made(stored, node, place, steps, blocks(call, scale, steps), offset)
        for other, given in zip(reversed(copied), reversed(more)):
            weight = None if weight is None else weight.through(other, given)
        return weight

    def _steps(self, name: str) -> Any:
        """Whole numbers that are constant, or are made of a constant by QuantizeLinear; None for others."""
        maker = self.makers.get(name)
        if maker is None or maker.op != "QuantizeLinear":
            return self.graph.constants.get(name)
        given = [self.graph.constants.get(each) for each in maker.inputs]
        return None if any(each is None for each in given) else computed(maker, given)[0]


def _made(name: str, layer: Node, place: int, steps: Any, size: Any, zero: Any) -> Weight | None:
    """The weight of these whole numbers; None for a type of other numbers, and for what has no values."""
    limits = whole_limits(steps.dtype)
    if limits is None or not steps.size:
        return None
    least, most = limits
    values = (steps.astype(np.float64) - zero) * size
    return Weight(name, layer, place, values, np.abs(size), (least - zero) * size, (most - zero) * size)
