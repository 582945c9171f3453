"""Finds the first layer of a model whose output a file does not have. What the model computes between its layers is not known."""

from __future__ import annotations

from collections.abc import Mapping

from ..model import Node
from .divergence import Comparison, Trace, compared_outputs, tolerance
from .node_difference import described

NORM = "BatchNorm"  # begins the names of layers that converters merge with the layer before


def first_layer(
    file: Trace, reference: Trace, outputs: Mapping[str, str], any_order: bool, coarse: float, general: bool
) -> list[str]:
    """A sentence on the first layer of the reference, a model, whose output is no value of the file; [] where outputs agree.

    A layer whose output the file lacks, and which is followed by one whose output it has, is merged with that one in the file.

    reference: the calls of the layers as nodes. The other arguments are those of ``divergences``.
    """
    away = max((away for away, _, _ in compared_outputs(file, reference, outputs)), default=0.0)
    allowed = tolerance(file, reference, away, coarse)
    calls = reference.graph.nodes
    if away <= allowed or not calls or not general:
        return []
    comparison = Comparison(file, reference, allowed, any_order, general)
    lacking = _first_lacking(comparison, reference)
    if lacking is None:
        return [f"the file has the output of every layer of the reference, and differs behind {_named(calls[-1])}"]
    return [_describe(comparison, file, reference, lacking)]


def _first_lacking(comparison: Comparison, reference: Trace) -> Node | None:
    """The first call whose output the file lacks, and that is not merged with a later one."""
    calls, there = reference.graph.nodes, dict[Node, bool]()
    behind: Node | None = None  # the next call that is given something that no layer returns
    for node in reversed(calls):
        users = [user for name in node.outputs for user in reference.graph.users.get(name, ())]
        after = users or ([behind] if behind is not None else [])
        has = all(comparison.equal(name, in_file=False) for name in node.outputs)
        there[node] = has or any(there.get(each, False) for each in after)
        if any(name not in reference.graph.makers for name in node.inputs):
            behind = node
    return next((node for node in calls if not there[node]), None)


def _describe(comparison: Comparison, file: Trace, reference: Trace, node: Node) -> str:
    """The sentence on a layer whose output the file lacks."""
    before = reference.graph.nodes[: reference.graph.nodes.index(node)]
    values = {name: comparison.equal(name, in_file=False) for name in node.inputs}
    if not all(values.values()):
        where = f"between layer {_named(before[-1])} and layer" if before else "before layer"
        return f"the file first differs {where} {_named(node)} of the reference: no value of the file is what that layer is given"
    norms = [user for name in node.outputs for user in reference.graph.users.get(name, ()) if user.op.startswith(NORM)]
    merged = f", or at {_named(norms[0])} behind it, which may be merged with it" if norms else ""
    mine = [
        user
        for names in values.values()
        for name in names
        for user in file.graph.users.get(name, ())
        if all(each in file.data and not comparison.equal(each) for each in user.outputs)
    ]
    more = f"; from that it computes {described(mine[0])}" if mine else ""
    return (
        f"the file first differs at layer {_named(node)} of the reference{merged}: it has what the layer is given, and no value "
        f"that the layer returns{more}"
    )


def _named(node: Node) -> str:
    return f"{node.name} ({node.op})"
