"""The layers of an ONNX graph that can have precisions of their own, and the casts between those in float32 and the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from xverify.framework.converter import Layer

# Operators that sum products, and others that lower precisions often do harm to. Each begins a layer.
SUMS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "LSTM", "GRU", "RNN"})
DELICATE = frozenset({
    "Softmax", "LogSoftmax", "LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization",
    "LpNormalization", "RMSNormalization", "ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSumExp",
    "Exp", "Log", "Pow", "GlobalAveragePool", "AveragePool", "CumSum", "If", "Loop", "Scan",
})  # fmt: skip
REQUANTISED = frozenset({"Conv", "ConvTranspose", "Gemm"})  # operators whose weights ONNX Runtime quantises by itself
TO_NARROW = ("graph_input_cast", "_cast_to_fp16_node")  # the names of Cast nodes that ONNX Runtime's converter adds
TO_WIDE = ("graph_output_cast", "_cast_to_fp32_node")


def named(model: Any) -> Any:
    """The model with a name for each node that has none. The names are the same for each copy of a model."""
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    return model


def layers_of(graph: Any, kinds: Collection[str] | None = None) -> tuple[Layer, ...]:
    """The layers of a graph whose nodes have names, in the order of computation. Each node is in one of them.

    A layer begins with a node that has a table of weights, sums products, or is delicate. The other nodes, such as activations,
    belong to the layer of their last input.

    kinds: the operators that can have the lower precision; layers without such a node are left out. None: all.
    """
    tables = {each.name for each in graph.initializer if sum(size > 1 for size in each.dims) > 1}
    found: list[list[Any]] = []
    early = []  # nodes before which there is no layer
    made: dict[str, int] = {}  # value -> index of the layer that computes it
    used: dict[str, int] = {}  # value -> index of the first layer that uses it
    for node in graph.node:
        place = max((made[name] for name in node.input if name in made), default=None)
        if _begins(node, tables, None if place is None else found[place][0]):
            found.append([])
            place = len(found) - 1
        if place is None:
            early.append(node)
            continue
        _join(node, place, found, made, used)
    ordered, found = (early[::-1], found) if found else (early, [[]])
    for node in ordered:
        places = [used[name] for name in node.output if name in used]
        _join(node, min(places, default=0), found, made, used)
    return tuple(
        Layer(nodes[0].name, nodes[0].op_type, tuple(node.name for node in nodes))
        for nodes in found
        if nodes and (kinds is None or any(node.op_type in kinds for node in nodes))
    )


def _begins(node: Any, tables: Collection[str], before: Any) -> bool:
    """Whether a layer begins with a node. before: the node with which the layer of its last input begins; None without one."""
    if node.op_type in SUMS or any(name in tables for name in node.input):
        return True
    # A normalisation may be written as several delicate nodes.
    return node.op_type in DELICATE and (before is None or before.op_type not in DELICATE)


def _join(node: Any, place: int, found: list[list[Any]], made: dict[str, int], used: dict[str, int]) -> None:
    """Add a node to a layer."""
    found[place].append(node)
    made.update(dict.fromkeys(filter(None, node.output), place))
    for name in filter(None, node.input):
        used[name] = min(place, used.get(name, place))


def nodes_of(layers: Sequence[Layer], keep: Collection[str]) -> list[str]:
    """The names of all nodes of these layers."""
    return [node for layer in layers if layer.name in keep for node in layer.nodes]


def shield(graph: Any, kept: Collection[str]) -> None:
    """Let ONNX Runtime compute these nodes of a quantised graph in float32, as the graph says.

    Where the input of a Conv or Gemm comes from DequantizeLinear, its optimiser also quantises the weights, with one scale for all
    channels. A Sum of one value in between changes nothing, and prevents this.
    """
    from onnx import helper

    made = {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    nodes = []
    for node in graph.node:
        if node.name in kept and node.op_type in REQUANTISED and node.input[0] in made:
            own = f"{node.name}_input"
            nodes.append(helper.make_node("Sum", [node.input[0]], [own], name=own))
            node.input[0] = own
        nodes.append(node)
    graph.ClearField("node")
    graph.node.extend(nodes)


def without_double_casts(graph: Any) -> None:
    """Remove what ONNX Runtime's converter to float16 adds around nodes that stay in float32 beyond what is needed.

    Where two of them use a value, it adds the same Cast twice, which is no valid graph. Between two of them, it adds a Cast to
    float16 and one back, which rounds the value.
    """
    from onnx import helper

    ends = {each.name for each in graph.output}
    wide = {node.output[0]: node.input[0] for node in graph.node if _added(node, TO_NARROW)}
    exact: dict[str, str] = {}  # value -> the same before it was rounded
    kept, known = [], set[str]()
    for node in graph.node:
        if known.intersection(filter(None, node.output)):
            continue
        known.update(node.output)
        if _added(node, TO_WIDE) and node.input[0] in wide:
            if node.output[0] not in ends:
                exact[node.output[0]] = wide[node.input[0]]
                continue
            node = helper.make_node("Identity", [wide[node.input[0]]], [node.output[0]], name=node.name)
        kept.append(node)
    for node in kept:
        for index, name in enumerate(node.input):
            node.input[index] = exact.get(name, name)
    used = ends.union(*(_uses(node) for node in kept))
    kept = [node for node in kept if not _added(node, TO_NARROW) or node.output[0] in used]
    graph.ClearField("node")
    graph.node.extend(kept)
    graph.ClearField("value_info")  # it has values twice, and those that are gone


def _added(node: Any, names: tuple[str, str]) -> bool:
    """Whether a node is a Cast that the converter added. names: how its name begins, or ends."""
    begin, end = names
    return node.op_type == "Cast" and (node.name.startswith(begin) or node.name.endswith(end))


def _uses(node: Any) -> Iterator[str]:
    """The names of all values that a node uses, also in its subgraphs."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (each.name for each in graph.output)
            for inner in graph.node:
                yield from _uses(inner)
