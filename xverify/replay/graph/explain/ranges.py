"""Scales and zero points of activations that contradict each other, or the reference, whatever the inputs are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..kinds import MOVES, QUANTISERS
from ..layers import FAMILIES, PARAMETERS
from ..model import Graph, Node
from .correspondence import corresponding

# Operators that take whole numbers -> the inputs that are whole numbers, each with its scale and zero point.
TAKES = {
    "DequantizeLinear": ((0, 1, 2),),
    "QLinearConv": ((0, 1, 2),),
    "QLinearMatMul": ((0, 1, 2), (3, 4, 5)),
    "QGemm": ((0, 1, 2),),
    "QLinearAdd": ((0, 1, 2), (3, 4, 5)),
    "QLinearMul": ((0, 1, 2), (3, 4, 5)),
    "QLinearSigmoid": ((0, 1, 2),),
    "QLinearLeakyRelu": ((0, 1, 2),),
    "QLinearSoftmax": ((0, 1, 2),),
    "QLinearGlobalAveragePool": ((0, 1, 2),),
}
# Operators that copy whole numbers, and so leave their scale as it is.
COPIES = MOVES - {"Cast"} | {"MaxPool", "GlobalMaxPool", "Slice", "Split"}
CLIPS = frozenset({"Relu", "Clip", "Max", "QLinearRelu"})
NEAR = 1e-5  # relative: scales that differ by less are the same one in float32
LEAST = 2  # whole numbers below 0 that a range must have to let negative numbers through


def wrong_ranges(graph: Graph, reference: Graph) -> list[str]:
    """A sentence on each activation that is read by another scale than it was written with, and on each ReLU that is undone."""
    return [*_read_otherwise(graph), *_undone(graph, reference)]


def _read_otherwise(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        for place, scale, zero in TAKES.get(node.op, ()):
            maker = _origin(graph, node.input(place))
            if maker is None:
                continue
            theirs, other = PARAMETERS[maker.op]
            read, written = (graph.constants.get(each) for each in (node.input(scale), maker.input(theirs)))
            if read is None or written is None or read.shape != written.shape:
                continue
            layer = node.name if node.op in FAMILIES else _behind(graph, node)
            ratio = float(np.max(np.abs(read / written))) if np.all(written) else 1.0
            if abs(ratio - 1.0) > NEAR:
                yield (
                    f"{layer}: its input {node.input(place)} is read with the scale {_shown(read)} and was written by "
                    f"{maker.name} with {_shown(written)}, so its values are × {ratio:.3g}"
                )
            mine, right = (_number(graph, each) for each in (node.input(zero), maker.input(other)))
            if mine is not None and right is not None and mine != right:
                yield (
                    f"{layer}: its input {node.input(place)} is read with the zero point {mine} and was written by "
                    f"{maker.name} with {right}"
                )


def _origin(graph: Graph, name: str) -> Node | None:
    """The node that makes whole numbers with a scale, behind nodes that copy them; None for another one."""
    for node in graph.line(graph.makers.get(name)):
        if node.op in PARAMETERS:
            return node
        if node.op not in COPIES:
            return None
    return None


def _number(graph: Graph, name: str) -> int | None:
    """A zero point; 0 where it is left out, and None where it is no single constant."""
    if not name:
        return 0
    found = graph.constants.get(name)
    return int(np.reshape(found, ())) if found is not None and found.size == 1 and found.dtype.kind in "iu" else None


def _shown(scale: Any) -> str:
    return f"{float(np.reshape(scale, -1)[0]):.4g}"


def _undone(graph: Graph, reference: Graph) -> Iterator[str]:
    """Where the reference has a ReLU, and the file only a quantiser whose range has negative numbers, too."""
    for match in corresponding(graph, reference).values():
        right, own = _relu(reference, match.reference), graph.makers.get(match.own)
        if right is None or own is None or _clips_before(graph, own) or _is_clipped(graph, match.own):
            continue
        if match.scale:
            zero, quantiser = match.zero, own
        else:
            users = graph.users.get(match.own, [])
            if len(users) != 1 or users[0].op != "QuantizeLinear":
                continue
            zero, quantiser = users[0].input(2), users[0]
        found = graph.constants.get(zero)
        if (
            found is None
            or found.dtype.kind not in "iu"
            or np.all(found.astype(int) - np.iinfo(found.dtype).min < LEAST)
        ):
            continue
        yield (
            f"{_behind(graph, quantiser)}: the reference has Relu '{right.name}' before it, and the file has {quantiser.name} "
            f"alone, whose zero point {int(np.reshape(found, -1)[0])} lets negative numbers through"
        )


def _relu(reference: Graph, name: str) -> Node | None:
    """The ReLU that makes a value, or that alone takes it; None for none."""
    maker, users = reference.makers.get(name), reference.users.get(name, [])
    found = maker if maker is not None and maker.op == "Relu" else users[0] if len(users) == 1 else None
    return found if found is not None and found.op == "Relu" and name not in reference.outputs else None


def _clips_before(graph: Graph, node: Node) -> bool:
    """Whether a node, or the one before it where it only quantises or moves a value, has no negative results."""
    found = next((each for each in graph.line(node) if each.op not in QUANTISERS | MOVES), node)
    return found.op in CLIPS


def _is_clipped(graph: Graph, name: str) -> bool:
    """Whether a node that takes a value, perhaps behind nodes that quantise or move it, has no negative results."""
    passed = QUANTISERS | MOVES
    return any(
        user.op in CLIPS or (user.op in passed and _is_clipped(graph, user.outputs[0]))
        for user in graph.users.get(name, ())
    )


def _behind(graph: Graph, node: Node) -> str:
    """The name of the layer that takes what a node makes; of the node itself when no layer is near."""
    first = node
    while True:
        users = [user for name in node.outputs for user in graph.users.get(name, ())]
        node = next((user for user in users if user.op in FAMILIES), users[0] if len(users) == 1 else first)
        if node.op in FAMILIES and node is not first:
            return node.name
        if node is first or (node.op not in MOVES and node.op != "DequantizeLinear"):
            return first.name
