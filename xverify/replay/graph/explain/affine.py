"""What lies behind a layer and is linear in each channel: a bias, a batch norm. Tools fold it into the layer, or leave it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kinds import MOVES, QUANTISERS
from ..layers import BIAS, FAMILIES, KINDS, PARAMETERS, WHOLE_SUMS, Kind
from ..model import Graph, Node
from ..operators.quantized import along
from ..operators.table import computed
from ..values import is_float

ADDS, SCALES = ("Add", "Sub"), ("Mul", "Div")


@dataclass(frozen=True)
class Constant:
    """A constant of real numbers. step: what one whole number more adds to each where the file holds whole numbers; else 0.

    name: of what the file stores.
    """

    name: str
    values: Any
    step: Any = 0.0


@dataclass(frozen=True)
class Affine:
    """A node that makes factor · x + shift of each channel. added: the constant that it adds, if it does no more than that."""

    node: Node
    factor: Any
    shift: Any
    added: Constant | None = None


@dataclass(frozen=True)
class Chain:
    """The linear nodes behind a layer, and the node behind them that is not."""

    parts: tuple[Affine, ...] = ()
    end: Node | None = None

    def told(self, bias: bool = False) -> str:
        """What is folded into a weight, or into a bias, in words; "" for nothing."""
        parts = [part for part in self.parts if bias or np.any(part.factor != 1.0)]
        return ", ".join(f"{part.node.op} {part.node.name}" for part in parts if bias is False or part.added is None)

    def names(self) -> list[str]:
        """The constants that the nodes add."""
        return [
            part.added.name if part.added is not None else part.node.name for part in self.parts if np.any(part.shift)
        ]

    def first(self, count: int) -> Chain:
        """The first nodes alone."""
        return Chain(self.parts[:count], self.end)

    def rest(self, count: int) -> list[str]:
        """The operators of the nodes behind the first ones."""
        return sorted(part.node.op for part in self.parts[count:])

    @property
    def factor(self) -> Any:
        """The factor of each channel."""
        found: Any = 1.0
        for part in self.parts:
            found = found * part.factor
        return found

    def of(self, bias: Any, but: Affine | None = None) -> Any:
        """The bias of the layer with these nodes folded in. bias: that of the layer alone. but: a node whose shift is left out."""
        for part in self.parts:
            bias = bias * part.factor + (0.0 if part is but else part.shift)
        return bias

    def behind(self, part: Affine) -> Any:
        """The factor of each channel behind one of the nodes."""
        return Chain(self.parts[self.parts.index(part) + 1 :]).factor


def channels(layer: Node, rank: int) -> int | None:
    """The axis of the weights of a layer along which its outputs lie; None where a weight is not taken channel by channel.

    rank: of the weights.
    """
    family = FAMILIES.get(layer.op)
    if family == "conv":
        return 0
    if family == "transposed":
        return 1 if layer.get("group", 1) == 1 else None
    if family != "matmul":
        return None
    return 0 if layer.get("transB", 0) else rank - 1


def constant(graph: Graph, name: str) -> Constant | None:
    """A constant of real numbers, also one in whole numbers behind DequantizeLinear, and behind nodes that copy it."""
    if name in graph.constants:
        array = graph.constants[name]
        return Constant(name, array.astype(np.float64)) if is_float(array) else None
    maker = graph.makers.get(name)
    if maker is None or not maker.inputs:
        return None
    more: list[Any] = [graph.constants.get(each) for each in maker.inputs[1:]]
    if any(each is None for each in more):
        return None
    if maker.op == "DequantizeLinear":
        steps = graph.constants.get(maker.inputs[0])
        if steps is None or more[0].ndim > 1:
            return None
        size = np.abs(along(more[0], steps.ndim, maker.get("axis", 1) if steps.ndim > 1 else 0))
        return Constant(maker.inputs[0], computed(maker, [steps, *more])[0].astype(np.float64), size)
    inner = constant(graph, maker.inputs[0]) if maker.op in MOVES else None
    if inner is None:
        return None
    step = inner.step
    if np.ndim(step):
        step = computed(maker, [np.array(np.broadcast_to(step, inner.values.shape)), *more])[0]
    return Constant(inner.name, computed(maker, [inner.values, *more])[0], step)


def chain(graph: Graph, layer: Node, count: int, image: bool) -> Chain:
    """The linear nodes behind a layer.

    count: number of its channels. image: whether the channels are the second axis of its result, and not the last one.
    """
    parts: list[Affine] = []
    if layer.op in PARAMETERS and _clips(graph, layer, PARAMETERS[layer.op][1]):
        return Chain()
    value, whole, moved = layer.outputs[0], layer.op in WHOLE_SUMS, False
    while True:
        users = graph.users.get(value, [])
        if len(users) != 1 or value in graph.outputs or not users[0].outputs:
            return Chain(tuple(parts))
        user = users[0]
        if user.op == "QuantizeLinear" and _clips(graph, user):
            return Chain(tuple(parts), user)
        if whole and user.op == "Mul":
            whole = False
        elif user.op in MOVES:
            moved = moved or user.op == "Transpose" or (image and user.op not in ("Identity", "Cast"))
        elif user.op not in QUANTISERS:
            part = _part(graph, user, value, 1 if moved else count, image)
            if part is None:
                return Chain(tuple(parts), user)
            parts.append(part)
        value = user.outputs[0]


def _clips(graph: Graph, node: Node, place: int = 2) -> bool:
    """Whether the range of a quantiser begins at 0, so that it has the place of a ReLU."""
    zero = graph.constants.get(node.input(place))
    if zero is None:
        return not node.input(place)
    return bool(zero.dtype.kind in "iu" and np.all(zero == np.iinfo(zero.dtype).min))


def _part(graph: Graph, node: Node, value: str, count: int, image: bool) -> Affine | None:
    """A node as a linear function of each channel; None for another one."""
    if node.op == "BatchNormalization" and node.inputs[0] == value and not node.get("training_mode", 0):
        found = [constant(graph, name) for name in node.inputs[1:5]]
        if any(each is None or each.values.size != count for each in found):
            return None
        scale, shift, mean, variance = (each.values for each in found if each is not None)
        factor = scale / np.sqrt(variance + node.get("epsilon", 1e-5))
        return Affine(node, factor, shift - mean * factor)
    if node.op not in (*ADDS, *SCALES) or node.domain or len(node.inputs) != 2:
        return None
    place = list(node.inputs).index(value)
    other = constant(graph, node.inputs[1 - place])
    vector = None if other is None else _vector(other, count, image)
    if vector is None or (node.op in ("Sub", "Div") and place):
        return None
    if node.op in ADDS:
        sign = -1.0 if node.op == "Sub" else 1.0
        return Affine(node, 1.0, sign * vector.values, vector if node.op == "Add" else None)
    if node.op == "Div":
        return None if not np.all(vector.values) else Affine(node, 1.0 / vector.values, 0.0)
    return Affine(node, vector.values, 0.0)


def _vector(found: Constant, count: int, image: bool) -> Constant | None:
    """A constant as a number, or as one for each channel; None for another shape."""
    values = found.values
    if values.size == 1:
        return Constant(found.name, values.reshape(()), np.reshape(found.step, ()))
    fits = values.size == count and (
        (values.ndim > 2 and values.shape[1 if values.ndim > 3 else 0] == count) if image else values.shape[-1] == count
    )
    step = np.reshape(found.step, -1) if np.size(found.step) > 1 else found.step
    return Constant(found.name, values.reshape(-1), step) if fits else None


def own_bias(graph: Graph, layer: Node, count: int, behind: Chain) -> tuple[Constant | None, Affine | None]:
    """The bias of a layer: its own one, or the constant that a node behind it adds, with this node. None, None: it has none."""
    name = layer.input(BIAS) if KINDS.get(layer.op, Kind()).biased else ""
    if name:
        found = constant(graph, name)
        return (None if found is None else _vector(found, count, image=False)), None
    part = next((each for each in behind.parts if each.added is not None), None)
    return (None, None) if part is None else (part.added, part)


def pairs(mine: Chain, theirs: Chain) -> Iterator[tuple[Chain, Chain]]:
    """How much of two chains may be folded: all of both, or less, where the same operators are left on both sides."""
    yield mine, theirs
    for first in range(len(mine.parts), -1, -1):
        for second in range(len(theirs.parts), -1, -1):
            left = mine.rest(first)
            if left and left == theirs.rest(second):
                yield mine.first(first), theirs.first(second)


def spread(vector: Any, rank: int, axis: int | None) -> Any:
    """One number, or one for each channel, in the form in which it goes with the weights."""
    return vector if not np.ndim(vector) or axis is None else np.reshape(vector, _shape(rank, axis))


def _shape(rank: int, axis: int) -> Sequence[int]:
    return [-1 if each == axis else 1 for each in range(rank)]
