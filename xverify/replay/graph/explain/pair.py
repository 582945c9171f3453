"""Finds the first node of a file whose value its reference does not have, and the node of the reference in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..model import Node
from .divergence import MOST, SHARE, Comparison, Trace
from .sketch import apart

NORM = "BatchNormalization"


@dataclass(frozen=True)
class Pair:
    """Nodes that should compute the same.

    own: of the file. reference: of the reference, a layer with its batch norm where the file has none behind it.
    inputs: input of the first -> the reference's value that corresponds to it.
    """

    own: Node
    reference: tuple[Node, ...]
    inputs: Mapping[str, str]


def first_pair(file: Trace, reference: Trace, outputs: Mapping[str, str]) -> Pair | None:
    """The first pair that leads to an output that differs; None where no node of the reference stands in the place.

    outputs: name of an output of the reference -> its name in the file.
    """
    for theirs, mine in outputs.items():
        if mine not in file.sketches or theirs not in reference.sketches:
            continue
        away = apart(file.sketches[mine], reference.sketches[theirs])
        tolerance = min(MOST, max(file.least, reference.least, away * SHARE))
        if away > tolerance:
            comparison = Comparison(file, reference, tolerance, False, True)
            found = next(_pairs(comparison, file, reference, mine, theirs), None)
            if found is not None:
                return found
    return None


def _pairs(comparison: Comparison, file: Trace, reference: Trace, mine: str, theirs: str) -> Iterator[Pair]:
    for node in comparison._entries(mine):
        known = {name: comparison.equal(name) for name in file.needed(node)}
        before = [other for others in known.values() for other in others]
        shape = file.sketches[node.outputs[0]].shape if node.outputs[0] in file.sketches else None
        for each in comparison._counterparts(before, theirs):
            other = reference.sketches.get(each.node.outputs[0])
            if other is not None and other.shape == shape:
                nodes = _with_norm(each.node, node, file, reference)
                yield Pair(node, nodes, {name: others[0] for name, others in known.items() if others})


def _with_norm(other: Node, own: Node, file: Trace, reference: Trace) -> tuple[Node, ...]:
    """A node of the reference, with the batch norm that the file may have folded into its own node."""
    after, behind = (
        [each for name in node.outputs for each in trace.graph.users.get(name, ())]
        for node, trace in ((other, reference), (own, file))
    )
    folded = own.op == other.op and [each.op for each in after] == [NORM] and NORM not in [each.op for each in behind]
    return (other, after[0]) if folded else (other,)
