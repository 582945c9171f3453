"""Which weights of a float graph the quantised weights of another graph were made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..describe import Types
from ..layers import BIAS, FAMILIES, WHOLE_SUMS
from ..model import Graph, Node
from ..values import is_float
from .correspondence import corresponding
from .quantised_weights import MOVES, Weight
from .segments import segments_of

# What ONNX Runtime's quantiser appends to the name of a node.
SUFFIXES = ("", "_quant", "_MatMul_quant")
QUANTISERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
# Operators that tools fold into the weights of the layer before them, and those that they fold into its bias alone.
SCALING, ADDING = frozenset({"BatchNormalization", "Mul", "Div"}), frozenset({"Add", "Sub"})
SAMPLE = 4096  # values by which weights are found to be alike, before all of them are compared
LIKE = 0.9  # cosine from which weights may be the same ones with a fault; those of different layers have one near 0
FEW = 8  # values; fewer are alike by chance


@dataclass(frozen=True)
class Partner:
    """The weight of the reference that a quantised weight was made from, in the layout of that weight.

    called: its name and layer in words.
    """

    called: str
    values: Any


class Partners:
    """Finds partners. A layer has the name of its partner, or makes the value that corresponds to that of its partner."""

    def __init__(self, graph: Graph, reference: Graph) -> None:
        self.graph, self.reference = graph, reference
        self.types, self.theirs = Types(graph), Types(reference)
        named: dict[str, list[Node]] = {}
        for node in reference.nodes:
            named.setdefault(node.proto.name, []).append(node)
        self.named = {name: nodes[0] for name, nodes in named.items() if name and len(nodes) == 1}

    def layer(self, node: Node) -> Node | None:
        """The layer of the reference that a layer of the quantised graph was made from."""
        for suffix in SUFFIXES:
            other = self.named.get(node.proto.name.removesuffix(suffix)) if node.proto.name.endswith(suffix) else None
            if other is not None and _family(other) == _family(node):
                return other
        return self.by_value.get(node)

    def of(self, weight: Weight, other: Node) -> Partner | None:
        """The weight at the same place of the layer that corresponds; None where that has none, or one of another shape."""
        found = self._float(other.input(weight.place))
        if found is None:
            return None
        values, stored = found
        if _is_turned(weight.layer, weight.place) != _is_turned(other, weight.place) and values.ndim == 2:
            values = values.T
        if values.shape != weight.values.shape:
            return None
        return Partner(stored, values.astype(np.float64))

    def folded(self, weight: Weight, other: Node) -> str:
        """What a tool may have folded into a weight: a node beside the layer of the reference that the file lacks; "" for none."""
        layer = weight.layer
        mine = {_family(each) for each in (*_behind(layer, self.graph.users), *_before(layer, self.graph.makers))}
        return next(
            (f"{node.op} {node.name}" for node in self._foldable(other, weight.place) if node.op not in mine), ""
        )

    def _foldable(self, layer: Node, place: int) -> Iterator[Node]:
        """The nodes beside a layer of the reference that can be folded into its input at a place."""
        operators = SCALING | ADDING if place == BIAS else SCALING
        for node in (*_behind(layer, self.reference.users), *_before(layer, self.reference.makers)):
            if node.op in operators and any(self._float(name) is not None for name in node.inputs):
                yield node

    def left(self, weights: Iterable[Weight], taken: set[str]) -> Iterator[tuple[Weight, Partner | None]]:
        """Weights whose layer has no partner, each with the weight of the reference that has its values or nearly.

        taken: names of constants of the reference that are partners already.
        """
        free = {name: array for name, array in self._foldless().items() if name not in taken}
        for weight in weights:
            yield weight, max(self._alike(weight, free), key=lambda each: each[0], default=(0.0, None))[1]

    def _alike(self, weight: Weight, free: dict[str, Any]) -> Iterator[tuple[float, Partner]]:
        for name, array in free.items():
            for other in (array, array.T) if array.ndim == 2 else (array,):
                if other.shape == weight.values.shape and other.size >= FEW:
                    cosine = _cosine(weight.values, other)
                    if cosine >= LIKE:
                        yield cosine, Partner(name, other.astype(np.float64))

    def _foldless(self) -> dict[str, Any]:
        """The floating-point constants of the reference but those into which something may have been folded."""
        found = {name: array for name, array in self.reference.constants.items() if is_float(array)}
        for node in self.reference.nodes:
            for place, name in enumerate(node.inputs):
                if name in found and any(self._foldable(node, place)):
                    del found[name]
        return found

    def _float(self, name: str) -> tuple[Any, str] | None:
        """A constant of the reference and its name, also behind a node that transposes it."""
        turned: list[Any] = []
        while name not in self.reference.constants:
            maker = self.reference.makers.get(name)
            if maker is None or maker.op not in ("Transpose", "Identity"):
                return None
            if maker.op == "Transpose":
                turned.append(maker.get("perm"))
            name = maker.inputs[0]
        array = self.reference.constants[name]
        for order in reversed(turned):
            array = np.transpose(array, order)
        return (array, name) if is_float(array) else None

    @cached_property
    def by_value(self) -> dict[Node, Node]:
        """Pairs of layers that alone make two corresponding values of other corresponding values."""
        found = {}
        for segment in segments_of(self.graph, corresponding(self.graph, self.reference)):
            own = [node for node in segment.nodes if self._is_layer(self.types, node)]
            between = self.reference.ancestors(segment.match.reference, segment.needs - {segment.match.reference})
            others = [node for node in between if self._is_layer(self.theirs, node)]
            if len(own) == len(others) == 1 and _family(own[0]) == _family(others[0]):
                found[own[0]] = others[0]
        return found

    def _is_layer(self, types: Types, node: Node) -> bool:
        return node.op in FAMILIES and types.weights(node) is not None


def _behind(node: Node, users: dict[str, list[Node]]) -> list[Node]:
    """The nodes behind a layer, but those that quantise or move its values, and those that scale its whole numbers."""
    found, waiting = [], [(name, node.op in WHOLE_SUMS) for name in node.outputs if name]
    while waiting:
        name, whole = waiting.pop()
        for user in users.get(name, ()):
            scales = whole and user.op == "Mul"
            if user.op in QUANTISERS or user.op in MOVES or scales:
                waiting += [(each, whole and not scales) for each in user.outputs]
            else:
                found.append(user)
    return found


def _before(node: Node, makers: dict[str, Node]) -> list[Node]:
    """The nodes that make the inputs of a layer, but those that quantise or move values."""
    found, waiting = [], list(node.inputs)
    while waiting:
        maker = makers.get(waiting.pop())
        if maker is not None and (maker.op in QUANTISERS or maker.op in MOVES):
            waiting += maker.inputs[:1]
        elif maker is not None:
            found.append(maker)
    return found


def _family(node: Node) -> str:
    return FAMILIES.get(node.op, node.op.removeprefix("QLinear"))


def _is_turned(node: Node, place: int) -> bool:
    return bool(place == 1 and node.get("transB", 0)) or bool(place == 0 and node.get("transA", 0))


def _cosine(mine: Any, other: Any) -> float:
    """Cosine of the angle between two arrays of the same shape, or 0 where it is small in a sample of their values."""
    first, second = mine.reshape(-1), np.asarray(other, np.float64).reshape(-1)
    step = max(1, first.size // SAMPLE)
    found = 0.0
    for a, b in ((first[::step], second[::step]), (first, second)):
        sizes = float(np.linalg.norm(a) * np.linalg.norm(b))
        found = float(a @ b) / sizes if sizes else 0.0
        if found < LIKE - 0.1:
            return 0.0
    return found
