"""Operators with subgraphs: If, Loop, Scan and SequenceMap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model import Node
from ..values import Value
from .registry import control

if TYPE_CHECKING:
    from ..evaluation import Evaluation, Scope

Inputs = Sequence["Value | None"]


def each_pass(values: Sequence[Value], combine: Callable[[list[Any]], Any]) -> Value:
    """Combine values in each pass. Passes that share all of their values share the result."""
    done: dict[tuple[int, ...], Any] = {}
    passes = []
    for parts in zip(*(value.by_pass for value in values)):
        key = tuple(map(id, parts))
        if key not in done:
            done[key] = combine(list(parts))
        passes.append(done[key])
    return Value(tuple(passes), values[0].dtype)


def _truth(value: Value | None) -> bool:
    return value is None or value.exact is None or bool(np.reshape(value.exact, ()))


@control("If")
def branch(evaluation: Evaluation, node: Node, inputs: Inputs, scope: Scope) -> list[Value]:
    """If: one of two subgraphs."""
    return evaluation.run_all(node.get("then_branch" if _truth(inputs[0]) else "else_branch"), {}, scope)


@control("Loop")
def loop(evaluation: Evaluation, node: Node, inputs: Inputs, scope: Scope) -> list[Value]:
    """Loop: a subgraph repeated while its condition holds, and at most so many times."""
    body = node.get("body")
    bound = None if inputs[0] is None or inputs[0].exact is None else int(np.reshape(inputs[0].exact, ()))
    going, states = _truth(inputs[1]), evaluation.present(inputs[2:])
    rows: list[list[Value]] = []

    def once() -> list[Value]:
        number, condition = evaluation.value(np.array(len(rows), np.int64)), evaluation.value(np.array(going))
        return evaluation.run_all(body, dict(zip(body.inputs, [number, condition, *states])), scope)

    while going and (bound is None or len(rows) < bound):
        found = once()
        going, states = _truth(found[0]), found[1 : 1 + len(states)]
        rows.append(found[1 + len(states) :])
    if evaluation.reach is not None:
        evaluation.reach.trips(node, len(rows))
    if rows:
        return [*states, *(_stacked(evaluation, parts, 0) for parts in zip(*rows))]
    if len(body.outputs) == 1 + len(states):
        return states
    # The body tells the shape of what is stacked.
    return [*states, *(each_pass([value], lambda parts: np.stack(parts)[:0]) for value in once()[1 + len(states) :])]


def _stacked(evaluation: Evaluation, values: Sequence[Value], axis: int) -> Value:
    if not values:
        return evaluation.value(np.zeros((0,), np.float32))
    return each_pass(values, lambda parts: np.stack(parts, axis))


@control("Scan")
def scan(evaluation: Evaluation, node: Node, inputs: Inputs, scope: Scope) -> list[Value]:
    """Scan: a subgraph over the slices of some inputs, with a state."""
    if node.version < 9:
        raise node.unsupported("has another meaning before version 9, which is not implemented")
    body, count = node.get("body"), node.get("num_scan_inputs")
    given = evaluation.present(inputs)
    states, sequences = given[: len(given) - count], given[len(given) - count :]
    axes = node.get("scan_input_axes") or [0] * count
    backwards = node.get("scan_input_directions") or [0] * count
    steps = sequences[0].exact.shape[axes[0]]
    kept: list[list[Value]] = [[] for _ in body.outputs[len(states) :]]
    for step in range(steps):
        slices = [
            _slice(value, axis, steps - 1 - step if back else step)
            for value, axis, back in zip(sequences, axes, backwards)
        ]
        found = evaluation.run_all(body, dict(zip(body.inputs, [*states, *slices])), scope)
        states = found[: len(states)]
        for part, value in zip(kept, found[len(states) :]):
            part.append(value)
    out_axes = node.get("scan_output_axes") or [0] * len(kept)
    reversed_outputs = node.get("scan_output_directions") or [0] * len(kept)
    stacked = zip(kept, out_axes, reversed_outputs)
    return [*states, *(_stacked(evaluation, part[::-1] if back else part, axis) for part, axis, back in stacked)]


def _slice(value: Value, axis: int, place: int) -> Value:
    return each_pass([value], lambda parts: np.take(parts[0], place, axis))


@control("SequenceMap")
def sequence_map(evaluation: Evaluation, node: Node, inputs: Inputs, scope: Scope) -> list[Value]:
    """SequenceMap: a subgraph for every item of a sequence."""
    body, given = node.get("body"), evaluation.present(inputs)
    rows = []
    for place in range(len(given[0].exact)):
        items = [_item(value, place) if isinstance(value.exact, list) else value for value in given]
        rows.append(evaluation.run_all(body, dict(zip(body.inputs, items)), scope))
    return [each_pass(parts, list) for parts in zip(*rows)] if rows else [evaluation.value([]) for _ in body.outputs]


def _item(value: Value, place: int) -> Value:
    return Value(tuple(each[place] for each in value.by_pass), value.dtype)
