"""Finds the outputs of a graph that follow from a decision which rounding may change: a best class, kept boxes, or a gate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....verdict.limits import UNIT
from ..evaluation import Evaluation, Scope
from ..kinds import MOVES, has_float
from ..model import Graph, Node
from ..values import Value

DECISION = 10.0  # noise floors; a decision with a smaller margin may fall the other way
# Operators that select -> the place of the output that tells what.
SELECTING = {"ArgMax": 0, "ArgMin": 0, "TopK": 1, "NonMaxSuppression": 0}
COMPARING = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
POSITIONS = ("Compress", "NonZero")  # what they return has another size where a truth value is another one
# Functions that go from one end of their range to the other beside 0 -> the width of this range. Behind large inputs, the rounding
# of the argument may be larger than 1. Then such a function decides: it lets a channel pass, or holds it back.
GATES = {"Sigmoid": 1.0, "HardSigmoid": 1.0, "Tanh": 2.0}


class Selections:
    """Follows decisions through an evaluation of a graph. samples: number of perturbed passes, which stand behind the exact one.

    by: name of a value -> the decision that it follows from and rounding may change, in words.
    """

    def __init__(self, graph: Graph, samples: int) -> None:
        self.graph, self.samples = graph, samples
        self.by: dict[str, str] = {}
        self.truths: dict[str, str] = {}  # the same for truth values, which count where they decide on a size
        self.sized = any(node.op in POSITIONS for node in graph.nodes)

    def visit(self, node: Node, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        """Look at one node with its values."""
        before = next((self.by[name] for name in node.inputs if name in self.by), "")
        truth = next((self.truths[name] for name in node.inputs if name in self.truths), "")
        if before or (truth and node.op in POSITIONS):
            self.by.update(dict.fromkeys(node.outputs, before or truth))
        elif node.op in SELECTING:
            place = SELECTING[node.op]
            if self._may_change(node, inputs, outputs, place):
                self.by[node.outputs[place]] = f"what {node.op} {node.name!r} selects"
        elif node.op in GATES and self._may_open(node, inputs, outputs[0]):
            self.by[node.outputs[0]] = f"the result of {node.op} {node.name!r} by half of its range"
        elif truth or (self.sized and node.op in COMPARING and self._may_change(node, inputs, outputs, 0)):
            says = truth or f"the comparison {node.op} {node.name!r}"
            self.truths.update(dict.fromkeys(node.outputs, says))

    def of_output(self, name: str) -> str:
        """The decision that an output of the graph follows from, in words; "" for none.

        A selection that is itself an output of a known size, perhaps cast, is compared by value, without those that may change.
        """
        line = self.graph.line(self.graph.makers.get(name))
        node = next((each for each in line if each.op not in MOVES - {"Transpose"}), None)
        alone = node is not None and node.op in SELECTING and node.op != "NonMaxSuppression"
        return "" if alone else self.by.get(name, "")

    def _may_change(self, node: Node, inputs: Sequence[Value | None], outputs: Sequence[Value], place: int) -> bool:
        if not has_float(inputs) or place >= len(outputs):
            return False
        exact = outputs[place].exact
        return any(not np.array_equal(each, exact) for each in others(self.graph, node, inputs, place, self.samples))

    def _may_open(self, node: Node, inputs: Sequence[Value | None], output: Value) -> bool:
        """Whether the result of a gate may change by half of its range. A product with its own argument, as in SiLU, does not."""
        users = self.graph.users.get(node.outputs[0], [])
        if not noise_moves(node, inputs) or all(each.op == "Mul" and node.inputs[0] in each.inputs for each in users):
            return False
        found = others(self.graph, node, inputs, 0, self.samples)
        return any(bool((np.abs(each - output.exact) >= GATES[node.op] / 2).any()) for each in found)


def noise_moves(node: Node, inputs: Sequence[Value | None]) -> bool:
    """Whether DECISION times the noise of its argument moves a gate from one end to the other, where the argument is near 0."""
    value = inputs[0] if node.op in GATES else None
    if value is None or not isinstance(value.exact, np.ndarray) or not value.exact.size:
        return False
    with np.errstate(invalid="ignore"):
        return any(bool((DECISION * np.abs(each - value.exact) >= 1.0).any()) for each in value.by_pass[1:])


def others(graph: Graph, node: Node, inputs: Sequence[Value | None], place: int, samples: int) -> Iterator[Any]:
    """What a node decides when the noise of its inputs is DECISION times as large. place: of the output."""
    alone = Evaluation()
    scope = Scope(graph, {}, None, alone)
    for sample in range(1, 1 + samples):
        for size in (DECISION, -DECISION):
            moved = [_amplified(each, sample, size) for each in inputs]
            if node.op == "NonMaxSuppression":  # nothing says which of two equal scores comes first
                moved[1] = _without_ties(moved[1], sample)
            yield alone.step(node, moved, scope)[place].exact


def _amplified(value: Value | None, sample: int, size: float) -> Value | None:
    if value is None or not value.is_float or not isinstance(value.exact, np.ndarray):
        return None if value is None else Value((value.exact,), value.dtype)
    with np.errstate(invalid="ignore"):
        moved = value.exact + size * (value.by_pass[sample] - value.exact)
    # A value that is finite in the exact pass alone is undetermined: it may be above any other, or below.
    beyond = np.where(np.isfinite(value.exact), np.copysign(np.inf, size), value.exact)
    return Value((np.where(np.isfinite(moved), moved, beyond),), value.dtype)


def _without_ties(value: Value | None, seed: int) -> Value | None:
    if value is None:
        return None
    drawn = np.random.default_rng(seed).uniform(-UNIT, UNIT, np.shape(value.exact))
    return Value((value.exact * (1 + drawn),), value.dtype)


def equal_ends(node: Node, inputs: Sequence[Value | None]) -> tuple[Any, Any] | None:
    """The first and the last index of the values that ArgMax or ArgMin selects from, exactly equal ones; None for other nodes."""
    value = inputs[0] if node.op in ("ArgMax", "ArgMin") else None
    if value is None or not isinstance(value.exact, np.ndarray) or not value.exact.size:
        return None
    axis, x = node.get("axis", 0), value.exact
    best = x == (x.max if node.op == "ArgMax" else x.min)(axis=axis, keepdims=True)
    return best.argmax(axis), x.shape[axis] - 1 - np.flip(best, axis).argmax(axis)


def uncertain(graph: Graph, node: Node, inputs: Sequence[Value | None], value: Value, place: int, samples: int) -> Any:
    """Where one output of a node may change, value by value."""
    changes = np.zeros(np.shape(value.exact), bool)
    for other in others(graph, node, inputs, place, samples):
        if np.shape(other) == changes.shape:
            changes |= other != value.exact
    return changes
