"""The noise of a whole graph: how much rounding at every node can change its outputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from ....float64.rounding import Noise, held
from ....verdict.local import sampled
from ..evaluation import EXACT, OWN, After, Evaluation, given
from ..kinds import MOVES, QUANTISING, has_float
from ..model import Graph, Node
from ..reach import Reach
from ..values import Named, Value, convert, tensor, unit_roundoff
from .perturbed import Perturbed
from .selections import Selections, equal_ends, uncertain

SAMPLES = 4  # perturbed evaluations
STRAIGHT = MOVES - {"Transpose"}  # operators that leave all values in their order


@dataclass(frozen=True)
class OutputNoise:
    """The exact value of one output of a graph, and its noise.

    exact: in float64; whole numbers in their own type.
    noise: of every value, the rms of the change by rounding at every node and of the error in the types of the file. For whole
        numbers 0, and infinity where rounding may change the decision.
    dtype: the type that the file declares.
    value: the output in every pass; None where only a part of the output was computed in all of them.
    undecided: the decision that it follows from and rounding may change, in words; "" where there is none.
    ties: the first and the last index of exactly equal values that each of its numbers selects from; None for other outputs.
    """

    exact: Any
    noise: Any
    dtype: np.dtype[Any] | None
    value: Value | None = None
    undecided: str = ""
    ties: tuple[Any, Any] | None = None


def noise(
    graph: Graph,
    inputs: Mapping[str, Any],
    seed: int = 0,
    samples: int = SAMPLES,
    own: bool = True,
    approximated: Collection[str] = (),
    fed: Mapping[str, Value] | None = None,
    watch: After | None = None,
    reach: Reach | None = None,
) -> dict[str, OutputNoise]:
    """The exact outputs of a graph with their noise. One pass evaluates the graph exactly and with perturbations, side by side.

    inputs: an array for each input by name.
    samples: number of perturbed evaluations.
    own: whether to evaluate the graph in its own types, too; that error is a part of the noise floor.
    approximated: names of nodes whose error is that of an approximation; see ``approximations``.
    fed: inputs that have a value of their own in every pass, in the place of those of ``inputs``: outputs of an earlier call of
        this function with the same passes.
    watch: called after each node with the node, its inputs and its outputs. reach: see ``Evaluation``.
    """
    perturbed = [Perturbed(Noise(seed + index), True, approximated) for index in range(samples)]
    vague, ties, selections = Named(), dict[str, tuple[Any, Any]](), Selections(graph, samples)
    # Whole numbers are decisions also where they are cast to floats in the end.
    lines = {name: tuple(_line(graph, name)) for name in graph.outputs}
    wanted = {each for line in lines.values() for each in line}

    def after(node: Node, arguments: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        selections.visit(node, arguments, outputs)
        if watch is not None:
            watch(node, arguments, outputs)
        for index, (name, value) in enumerate(zip(node.outputs, outputs)):
            if name in wanted and not value.is_float and isinstance(value.exact, np.ndarray):
                vague[name] = _uncertain(graph, node, arguments, value, index, samples)
                ends = equal_ends(node, arguments) if vague[name].any() else None
                if ends is not None:
                    ties[name] = ends

    evaluation = Evaluation([EXACT, *perturbed, *([OWN] if own else [])], after, reach)
    found = evaluation.run(graph, {**given(evaluation, graph, inputs), **(fed or {})})

    def output(line: Sequence[str], each: Value, name: str) -> OutputNoise:
        first = next((behind for behind in reversed(line) if behind in vague), "")  # the others only move its values
        floor = _noise(each, samples, vague.get(first))
        return OutputNoise(each.exact, floor, each.dtype, each, selections.of_output(name), ties.get(first))

    return {
        own: output(lines.get(own, ()), each, name)
        for name, value in zip(graph.outputs, found)
        if value is not None
        for own, each in _tensors(name, value)
    }


def _line(graph: Graph, name: str) -> Iterator[str]:
    """An output, and the names of the same values in front of it, before they were moved or cast."""
    yield name
    for node in takewhile(lambda each: each.op in STRAIGHT, graph.line(graph.makers.get(name))):
        yield node.inputs[0]


def _tensors(name: str, value: Value) -> Iterator[tuple[str, Value]]:
    """(name, value) of an output; each item of a sequence is one by itself. An optional output that is left out is none."""
    if isinstance(value.exact, list):
        for place in range(len(value.exact)):
            yield f"{name}_{place}", Value(tuple(each[place] for each in value.by_pass), value.dtype)
    elif value.exact is not None:
        yield name, value


def _noise(value: Value, samples: int, uncertain: Any) -> Any:
    """The noise of an output. uncertain: of whole numbers, where rounding may change them; None where it was not asked."""
    exact = value.exact
    if not isinstance(exact, np.ndarray) or not value.is_float:
        shape = np.shape(exact) if isinstance(exact, np.ndarray) else ()
        return np.zeros(shape) if uncertain is None else np.where(uncertain, np.inf, 0.0)
    # The output is rounded to its type, also where nothing before it is: a window of Hann follows from a whole number.
    rounding = unit_roundoff(value.dtype) / math.sqrt(3) * np.abs(exact)
    if uncertain is not None:  # whole numbers that are cast
        exactly = held(tensor(exact).contiguous(), unit_roundoff(value.dtype)).numpy()
        return np.where(uncertain.reshape(exact.shape), np.inf, np.where(exactly, 0.0, rounding))
    found = np.hypot(sampled(exact, value.by_pass[1 : 1 + samples]), rounding)
    with np.errstate(invalid="ignore"):
        for own in value.by_pass[1 + samples :]:
            found = np.hypot(found, convert(own, np.float64) - exact)
    return found


def _uncertain(
    graph: Graph, node: Node, arguments: Sequence[Value | None], value: Value, index: int, samples: int
) -> Any:
    """Where a decision changes when the noise of its inputs is DECISION times as large."""
    changes = np.zeros(np.shape(value.exact), bool)
    if node.op not in QUANTISING:
        return uncertain(graph, node, arguments, value, index, samples) if has_float(arguments) else changes
    for each in value.by_pass[1 : 1 + samples]:
        changes |= each != value.exact
    return changes
