"""Replaces each If of a graph by the branch that some inputs take. A runtime shows the values of nodes only outside of branches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper

from .evaluation import evaluate
from .model import Graph
from .values import Named

BRANCHES = {True: "then_branch", False: "else_branch"}


def without_branches(model: ModelProto, folder: str, inputs: Mapping[str, Any]) -> ModelProto | None:
    """The model with the branches taken; None when its graph has no If. Branches within branches are taken, too.

    folder: of the file, for its external data. inputs: an array for each input by name.
    """
    taken = None
    while any(map(_is_if, (taken or model).graph.node)):
        before, taken = taken or model, ModelProto()
        taken.CopyFrom(before)
        _replace(taken.graph, _conditions(before, folder, inputs))
    return taken


def _is_if(node: NodeProto) -> bool:
    return node.op_type == "If" and node.domain in ("", "ai.onnx")


def _conditions(model: ModelProto, folder: str, inputs: Mapping[str, Any]) -> dict[str, bool]:
    """Name of the value that an If is given -> this value."""
    wanted = {node.input[0] for node in model.graph.node if _is_if(node)}
    graph = Graph(model, folder)
    found: Named = {name: graph.constants[name] for name in wanted & graph.constants.keys()}
    found.update({name: inputs[name] for name in wanted & inputs.keys()})

    def visit(_: Any, outputs: Mapping[str, Any]) -> None:
        found.update({name: outputs[name] for name in wanted & outputs.keys()})

    evaluate(graph, inputs, visit)
    return {name: bool(np.reshape(value, -1)[0]) for name, value in found.items()}


def _replace(graph: GraphProto, conditions: Mapping[str, bool]) -> None:
    """Put the nodes and constants of each branch that is taken in the place of its If."""
    nodes: list[NodeProto] = []
    for index, node in enumerate(graph.node):
        if not _is_if(node):
            nodes.append(node)
            continue
        wanted = BRANCHES[conditions[node.input[0]]]
        body = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
        names = _new_names(body, node, f"{node.name or f'if_{index}'}/")
        for tensor in body.initializer:
            graph.initializer.add().CopyFrom(tensor)
            graph.initializer[-1].name = names[tensor.name]
        nodes.extend(_renamed(each, names) for each in body.node)
        nodes.extend(
            helper.make_node("Identity", [names.get(inner.name, inner.name)], [outer])
            for inner, outer in zip(body.output, node.output)
            if names.get(inner.name) != outer
        )
    kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _new_names(body: GraphProto, node: NodeProto, prefix: str) -> dict[str, str]:
    """Name of a value of the branch -> its name in the graph. A value that is an output of the If gets the name of this output."""
    computed = [name for each in body.node for name in each.output if name]
    names = {name: prefix + name for name in (*computed, *(tensor.name for tensor in body.initializer))}
    for inner, outer in zip(body.output, node.output):
        if inner.name in computed and names[inner.name] == prefix + inner.name:
            names[inner.name] = outer
    return names


def _renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """A copy of a node with other names of its values, also inside of its subgraphs."""
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    for graph in _subgraphs(copy):
        own = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
        own |= {name for each in graph.node for name in each.output}
        outer = {old: new for old, new in names.items() if old not in own}
        inside = [_renamed(each, outer) for each in graph.node]
        del graph.node[:]
        graph.node.extend(inside)
        for value in graph.output:
            value.name = outer.get(value.name, value.name)
    return copy


def _subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs
