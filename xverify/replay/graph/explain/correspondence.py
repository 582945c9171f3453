"""Which values of a quantised or converted graph correspond to values of the graph that it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..describe import Types
from ..layers import BIAS, FAMILIES, KINDS, PARAMETERS, WHOLE_SUMS
from ..model import Graph, Node
from ..source import source

QUANTISED_NAME = "_quantized"  # what ONNX Runtime's quantiser appends to the name of a value that becomes whole numbers
ENOUGH = 0.5  # share of the layers that must correspond by name; otherwise modules and the order of layers are tried


@dataclass(frozen=True)
class Match:
    """A value of a graph and the value of the reference that it stands for.

    scale, zero: names of the scale and the zero point when the graph holds it in whole numbers; "" when it holds real numbers.
    """

    own: str
    reference: str
    scale: str = ""
    zero: str = ""


def corresponding(graph: Graph, reference: Graph) -> dict[str, Match]:
    """Name of a value of the graph -> its match: by name, or else by the module or the order of the layers that make the values."""
    types, theirs = Types(graph), Types(reference)
    matches = {match.own: match for match in _by_name(types, theirs)}
    for name in [name for name, match in matches.items() if match.scale and _is_dequantised(graph, name, matches)]:
        del matches[name]
    layers, right = _layers(types), _layers(theirs)
    named = {match.reference for match in matches.values()}
    if sum(_end(theirs, node, True) in named or node.outputs[0] in named for node in right) < ENOUGH * len(layers):
        for match in _by_module_or_order(types, theirs, layers, right):
            if match.reference not in named:
                matches.setdefault(match.own, match)
    return matches


def _by_name(types: Types, theirs: Types) -> Iterator[Match]:
    for name in types.graph.makers:
        whole = "int" in types.dtypes.get(name, "")
        plain = name.removesuffix(QUANTISED_NAME) if whole else name
        if plain in theirs.graph.makers and _is_float(theirs, plain) and (plain != name or _is_float(types, name)):
            yield from _match(types, name, plain)


def _match(types: Types, name: str, reference: str) -> Iterator[Match]:
    """The match of two values; none for one in whole numbers whose scale is not known."""
    if "int" not in types.dtypes.get(name, ""):
        yield Match(name, reference)
        return
    # The scale and the zero point of what a node returns may be those of its input.
    graph = types.graph
    maker = next((each for each in graph.line(graph.makers[name]) if each.op in PARAMETERS), None)
    scale, zero = PARAMETERS[maker.op] if maker is not None else (0, 0)
    if maker is not None and scale < len(maker.inputs):
        yield Match(name, reference, maker.inputs[scale], maker.input(zero))


def _is_dequantised(graph: Graph, name: str, found: Mapping[str, Match]) -> bool:
    """Whether a value in whole numbers is only there to become a corresponding value in real numbers."""
    users = graph.users.get(name, [])
    return len(users) == 1 and users[0].op == "DequantizeLinear" and users[0].outputs[0] in found


def _is_float(types: Types, name: str) -> bool:
    return "float" in types.dtypes.get(name, "")


def _layers(types: Types) -> list[Node]:
    """The layers with weights, in the order of the file."""
    return [node for node in types.graph.nodes if node.op in FAMILIES and types.weights(node) is not None]


def _by_module_or_order(types: Types, theirs: Types, layers: list[Node], right: list[Node]) -> Iterator[Match]:
    """Pairs of layers of the same module, or of the same place in the order of all layers with weights of the same shape."""
    pairs = _by_module(layers, right)
    same = len(layers) == len(right) and all(
        FAMILIES[a.op] == FAMILIES[b.op] and _size(types, a) == _size(theirs, b) for a, b in zip(layers, right)
    )
    if not pairs and same:
        pairs = dict(zip(layers, right))
    for own, other in pairs.items():
        yield from _match(types, _end(types, own, _has_bias(theirs, other)), other.outputs[0])


def _by_module(layers: list[Node], right: list[Node]) -> dict[Node, Node]:
    mine, others = _unique(layers), _unique(right)
    return {node: others[key] for key, node in mine.items() if key in others}


def _unique(layers: list[Node]) -> Mapping[tuple[str, str], Node]:
    """(module, family) -> the only layer of it."""
    keys = [(source(node).module, FAMILIES[node.op]) for node in layers]
    return {key: node for key, node in zip(keys, layers) if key[0] and keys.count(key) == 1}


def _size(types: Types, node: Node) -> int:
    found = types.weights(node)
    return int(types.graph.constants[found[1].name].size) if found is not None else 0


def _has_bias(types: Types, node: Node) -> bool:
    return node.op in KINDS and KINDS[node.op].biased and bool(node.input(BIAS))


def _end(types: Types, node: Node, bias: bool) -> str:
    """The value that a layer returns in the end: behind the scaling of whole numbers, and behind a bias when there is one."""
    value = node.outputs[0]
    while True:
        users = types.graph.users.get(value, [])
        if len(users) != 1 or not users[0].outputs:
            return value
        user = users[0]
        whole = node.op in WHOLE_SUMS
        added = user.op == "Add" and bias and not _has_bias(types, node) and _adds_constant(types, user, value)
        if not (added or (whole and user.op in ("Cast", "Mul"))):
            return value
        value = user.outputs[0]
        if added:
            return value


def _adds_constant(types: Types, node: Node, value: str) -> bool:
    for name in node.inputs:
        if name != value and name not in types.graph.constants:
            maker = types.graph.makers.get(name)
            if maker is None or not maker.inputs or maker.inputs[0] not in types.graph.constants:
                return False
    return True
