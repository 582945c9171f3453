"""Which weights of a float graph the quantised weights of another graph were made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..describe import Types
from ..kinds import MOVES, QUANTISERS
from ..layers import BIAS, FAMILIES, KINDS, WHOLE_SUMS
from ..model import Graph, Node
from ..values import Named, is_float
from .affine import Chain, chain, channels, own_bias, pairs, spread
from .correspondence import corresponding
from .quantised_weights import Weight, quantised_weights
from .segments import segments_of

# What ONNX Runtime's quantisers, and the optimiser before them, append to the name of a node.
SUFFIXES = ("_quant", "_MatMul", "_matmul", "_Q4", "_Q8", "/MatMulAddFusion")
# Operators that tools fold into the weights of the layer before them, and those that they fold into its bias alone.
SCALING, ADDING = frozenset({"BatchNormalization", "Mul", "Div"}), frozenset({"Add", "Sub"})
SAMPLE = 4096  # values by which weights are found to be alike, before all of them are compared
LIKE = 0.9  # cosine from which weights may be the same ones with a fault; those of different layers have one near 0
FEW = 8  # values; fewer are alike by chance


@dataclass(frozen=True)
class Partner:
    """The weight of the reference that a quantised weight was made from, in the layout of that weight.

    called: its name. folded: what is folded into it, in words; "" for nothing.
    """

    called: str
    values: Any
    folded: str = ""


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
        name = node.proto.name
        while name:
            other = self.named.get(name)
            if other is not None and _family(other) == _family(node):
                return other
            name = name.removesuffix(next((suffix for suffix in SUFFIXES if name.endswith(suffix)), name))
        return self.by_value.get(node)

    def of(self, weight: Weight, other: Node) -> list[Partner]:
        """The weight at the same place of the layer that corresponds, as what lies behind both layers makes it; [] for none.

        The first one has all that is linear folded into it, on both sides. The others leave the same operators on both sides.
        """
        if weight.place == BIAS and weight.layer.op in FAMILIES:
            return self._biases(weight, other)
        found = self._float(other.input(weight.place)) or self.whole.get((other, weight.place))
        if found is None:
            return []
        values, stored = found
        if is_turned(weight.layer, weight.place) != is_turned(other, weight.place) and values.ndim == 2:
            values = values.T
        if values.shape != weight.values.shape:
            return []
        axis = channels(weight.layer, values.ndim) if weight.place == 1 else None
        if axis is None:
            return [Partner(stored, values.astype(np.float64))]
        found_pairs = pairs(*self.chains(weight.layer, other, values.shape[axis]))
        return [
            Partner(stored, values * spread(theirs.factor / mine.factor, values.ndim, axis), theirs.told())
            for mine, theirs in found_pairs
            if np.all(mine.factor)
        ]

    def chains(self, layer: Node, other: Node, count: int) -> tuple[Chain, Chain]:
        """What lies behind a layer, and behind its partner. count: number of channels."""
        image = _family(layer) != "matmul"
        return chain(self.graph, layer, count, image), chain(self.reference, other, count, image)

    def bias(self, weight: Weight) -> Weight | None:
        """The bias of the layer of a weight, where it is not in whole numbers of that layer's own; None where it has none."""
        axis = channels(weight.layer, weight.values.ndim) if weight.place == 1 else None
        if axis is None:
            return None
        count = weight.values.shape[axis]
        behind = chain(self.graph, weight.layer, count, _family(weight.layer) != "matmul")
        found, _ = own_bias(self.graph, weight.layer, count, behind)
        if found is None or (found.values.size != count and found.values.size != 1):
            return None
        ends = np.full((), np.inf)
        return Weight(found.name, weight.layer, BIAS, np.broadcast_to(found.values, count), found.step, -ends, ends)

    def _biases(self, weight: Weight, other: Node) -> list[Partner]:
        """What the bias of a layer must be, so that it and the nodes behind the layer add what the reference adds."""
        count = weight.values.size
        mine, theirs = self.chains(weight.layer, other, count)
        plain, _ = own_bias(self.reference, other, count, Chain())
        has_own = bool(KINDS[weight.layer.op].bias) or bool(KINDS[weight.layer.op].biased and weight.layer.input(BIAS))
        _, part = (None, None) if has_own else own_bias(self.graph, weight.layer, count, mine)
        found = []
        for own, right in pairs(mine, theirs):
            if part is not None and part not in own.parts:
                continue
            factor = own.factor if part is None else own.behind(part)
            if not np.all(factor):
                continue
            values = (right.of(0.0 if plain is None else plain.values) - own.of(0.0, part)) / factor
            called = plain.name if plain is not None else next(iter(right.names()), "none")
            found.append(Partner(called, np.broadcast_to(values, weight.values.shape), right.told(bias=True)))
        return found

    def folded(self, weight: Weight, other: Node) -> str:
        """What a tool may have folded into a weight from before its layer: a node that the file lacks; "" for none."""
        mine = {_family(each) for each in _before(weight.layer, self.graph.makers)}
        found = (
            node for node in self._linear(_before(other, self.reference.makers), weight.place) if node.op not in mine
        )
        return next((f"{node.op} {node.name}" for node in found), "")

    def _foldable(self, layer: Node, place: int) -> Iterator[Node]:
        """The nodes beside a layer of the reference that can be folded into its input at a place."""
        return self._linear([*_behind(layer, self.reference.users), *_before(layer, self.reference.makers)], place)

    def _linear(self, nodes: Iterable[Node], place: int) -> Iterator[Node]:
        operators = SCALING | ADDING if place == BIAS else SCALING
        for node in nodes:
            if node.op in operators and any(self._float(name) is not None for name in node.inputs):
                yield node

    def left(self, weights: Iterable[Weight], taken: set[str]) -> Iterator[tuple[Weight, Partner | None]]:
        """Weights whose layer has no partner, each with the weight of the reference that has its values or nearly.

        taken: names of constants of the reference that are partners already.
        """
        free = {name: array for name, array in self._foldless().items() if name not in taken}
        for weight in weights:
            yield weight, max(self._alike(weight, free), key=lambda each: each[0], default=(0.0, None))[1]

    def _alike(self, weight: Weight, free: Named) -> Iterator[tuple[float, Partner]]:
        for name, array in free.items():
            for other in (array, array.T) if array.ndim == 2 else (array,):
                if other.shape == weight.values.shape and other.size >= FEW:
                    cosine = _cosine(weight.values, other)
                    if cosine >= LIKE:
                        yield cosine, Partner(name, other.astype(np.float64))

    def _foldless(self) -> Named:
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

    @cached_property
    def whole(self) -> dict[tuple[Node, int], tuple[Any, str]]:
        """What the quantised weights of the reference stand for, with their names, by layer and place."""
        return {(each.layer, each.place): (each.values, each.name) for each in quantised_weights(self.reference)}

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


def is_turned(node: Node, place: int) -> bool:
    """Whether a layer takes the matrix at a place transposed."""
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
