"""What the inputs of the evaluations of a graph reach: branches, further trips, and both sides of comparisons and of clips.

What runs on one side only is right for these inputs, and nothing tells what it does on the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .model import Body, Graph, Node
from .values import Value, exact_of

# A bound that is larger than this stands for none: exporters write the ends of the range of a type.
NO_BOUND = 1e30
SHAPES = ("Shape", "Size")  # operators behind which nothing depends on the values of inputs
Sides = Iterator[tuple[str, bool]]  # what is to be said of a side that no value reached, and whether one did
Watch = Callable[[Node, Sequence[Any], Any], Sides]  # of a node, its inputs and its first output


def _around(node: Node, given: Sequence[Any], _: Any) -> Sides:
    """Activations that change at zero."""
    yield "no value is negative", bool(np.any(given[0] < 0))
    yield "no value is positive", bool(np.any(given[0] > 0))


def _between(low: Any, high: Any, values: Any) -> Sides:
    for bound, side, reached in ((low, "below its lower", np.less), (high, "above its upper", np.greater)):
        if bound is not None and np.size(bound) == 1 and abs(float(np.reshape(bound, ()))) < NO_BOUND:
            yield f"no value is {side} bound", bool(np.any(reached(values, bound)))


def _clip(node: Node, given: Sequence[Any], _: Any) -> Sides:
    low, high = (given[place] if len(given) > place else node.get(name) for place, name in ((1, "min"), (2, "max")))
    return _between(low, high, given[0])


def _hard(node: Node, given: Sequence[Any], _: Any) -> Sides:
    """Sigmoids and their products that are straight between two ends."""
    slope, middle = (1 / 6, 0.5) if node.op == "HardSwish" else (node.get("alpha", 0.2), node.get("beta", 0.5))
    return _between(-middle / slope, (1 - middle) / slope, given[0])


def _threshold(node: Node, given: Sequence[Any], _: Any) -> Sides:
    return _between(node.get("alpha", 1.0), node.get("alpha", 1.0), given[0])


def _either(node: Node, given: Sequence[Any], _: Any) -> Sides:
    """Min and Max of two values."""
    if len(given) == 2:
        first, second = given if node.op == "Min" else given[::-1]
        yield "its first argument is never the result", bool(np.any(first < second))
        yield "its second argument is never the result", bool(np.any(second < first))


def _truth(node: Node, given: Sequence[Any], found: Any) -> Sides:
    yield "it is never true", bool(np.any(found))
    yield "it is never false", not bool(np.all(found))


def _branch(node: Node, given: Sequence[Any], _: Any) -> Sides:
    truth = bool(np.reshape(given[0], -1)[0])
    yield "its then branch did not run", truth
    yield "its else branch did not run", not truth


WATCHED: Mapping[str, Watch] = {
    **dict.fromkeys(("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu"), _around),
    **dict.fromkeys(("HardSigmoid", "HardSwish"), _hard),
    **dict.fromkeys(("Min", "Max"), _either),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), _truth),
    "Clip": _clip, "ThresholdedRelu": _threshold, "If": _branch,
}  # fmt: skip


class Reach:
    """Looks at the nodes of several evaluations of a graph whose results depend on the values of its inputs, subgraphs included."""

    def __init__(self, graph: Graph) -> None:
        self.sides: dict[Node, dict[str, bool]] = {
            node: {} for node in dependent(graph, {*graph.inputs}) if node.op in WATCHED or node.op == "Loop"
        }

    def visit(self, node: Node, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        """Look at one node with its values."""
        if node not in self.sides or node.op == "Loop":
            return
        with np.errstate(invalid="ignore"):
            for side, reached in WATCHED[node.op](node, exact_of(inputs), outputs[0].exact if outputs else None):
                self._note(node, side, reached)

    def trips(self, node: Node, count: int) -> None:
        """Look at a loop that ran so often."""
        if node in self.sides:
            self._note(node, "it ran at most once", count > 1)

    def _note(self, node: Node, side: str, reached: bool) -> None:
        sides = self.sides[node]
        sides[side] = sides.get(side, False) or reached

    def says(self) -> tuple[str, ...]:
        """What no evaluation reached, by node. Of a branch that never ran, the nodes in it are not told."""
        return tuple(
            f"{node.name} ({node.kind}): {side}"
            for node, sides in self.sides.items()
            for side, reached in sides.items()
            if not reached
        )


def dependent(body: Body, known: set[str]) -> Iterator[Node]:
    """The nodes that take what depends on the values of known names, those of subgraphs and functions included."""
    for node in body.nodes:
        if node.op in SHAPES or not node.uses & known:
            continue
        yield node
        known.update(node.outputs)
        for inner in node.subgraphs:
            yield from dependent(inner, {*known, *inner.inputs})
        if node.function is not None:
            pairs = zip(node.function.inputs, node.inputs)
            yield from dependent(node.function, {inner for inner, outer in pairs if outer in known})
