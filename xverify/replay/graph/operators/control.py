"""Operators with subgraphs: If, Loop, Scan and SequenceMap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model import Node
from ..values import Value

if TYPE_CHECKING:
    from ..evaluation import Evaluation, Scope

Inputs = Sequence["Value | None"]


def each_pass(values: Sequence[Value], combine: Callable[[list[Any]], Any], dtype: Any = None) -> Value:
    """Combine values in each pass. Passes that share all of their values share the result."""
    done: dict[tuple[int, ...], Any] = {}
    passes = []
    for parts in zip(*(value.by_pass for value in values)):
        key = tuple(map(id, parts))
        if key not in done:
            done[key] = combine(list(parts))
        passes.append(done[key])
    return Value(tuple(passes), values[0].dtype if dtype is None else dtype)


def _present(values: Sequence[Value | None], passes: int) -> list[Value]:
    return [Value((None,) * passes, None) if value is None else value for value in values]


def _truth(value: Value | None) -> bool:
    return value is None or value.exact is None or bool(np.reshape(value.exact, ()))


def branch(evaluation: Evaluation, node: Node, inputs: Inputs, scope: Scope) -> list[Value]:
    """If: one of two subgraphs."""
    body = node.get("then_branch" if _truth(inputs[0]) else "else_branch")
    return _present(evaluation.run(body, {}, scope), len(evaluation.passes))


def loop(evaluation: Evaluation, node: Node, inputs: Inputs, scope: Scope) -> list[Value]:
    """Loop: a subgraph repeated while its condition holds, and at most so many times."""
    body, passes = node.get("body"), len(evaluation.passes)
    bound = None if inputs[0] is None or inputs[0].exact is None else int(np.reshape(inputs[0].exact, ()))
    names = body.inputs
    going, states = _truth(inputs[1]), _present(inputs[2:], passes)
    kept: list[list[Value]] = [[] for _ in body.outputs[1 + len(states) :]]
    count = 0

    def once() -> list[Value]:
        number, condition = evaluation.value(np.array(count, np.int64)), evaluation.value(np.array(going))
        return _present(evaluation.run(body, dict(zip(names, [number, condition, *states])), scope), passes)

    while going and (bound is None or count < bound):
        found = once()
        going, states = _truth(found[0]), found[1 : 1 + len(states)]
        for part, value in zip(kept, found[1 + len(states) :]):
            part.append(value)
        count += 1
    if not count and kept:  # the body tells the shape of what is stacked
        return [*states, *(each_pass([value], _none_of) for value in once()[1 + len(states) :])]
    return [*states, *(_stacked(evaluation, part, 0) for part in kept)]


def _none_of(parts: list[Any]) -> Any:
    """An array of none of these."""
    return np.stack(parts)[:0]


def _stacked(evaluation: Evaluation, values: list[Value], axis: int) -> Value:
    if not values:
        return evaluation.value(np.zeros((0,), np.float32))
    return each_pass(values, lambda parts: np.stack(parts, axis))


def scan(evaluation: Evaluation, node: Node, inputs: Inputs, scope: Scope) -> list[Value]:
    """Scan: a subgraph over the slices of some inputs, with a state."""
    if node.version < 9:
        raise node.unsupported("has another meaning before version 9, which is not implemented")
    body, count = node.get("body"), node.get("num_scan_inputs")
    given = _present(inputs, len(evaluation.passes))
    states, sequences = given[: len(given) - count], given[len(given) - count :]
    axes = node.get("scan_input_axes") or [0] * count
    backwards = node.get("scan_input_directions") or [0] * count
    steps = sequences[0].exact.shape[axes[0]]
    outs = len(body.outputs) - len(states)
    kept: list[list[Value]] = [[] for _ in range(outs)]
    for step in range(steps):
        slices = [
            _slice(value, axis, steps - 1 - step if back else step)
            for value, axis, back in zip(sequences, axes, backwards)
        ]
        found = _present(
            evaluation.run(body, dict(zip(body.inputs, [*states, *slices])), scope), len(evaluation.passes)
        )
        states = found[: len(states)]
        for part, value in zip(kept, found[len(states) :]):
            part.append(value)
    out_axes = node.get("scan_output_axes") or [0] * outs
    reversed_outputs = node.get("scan_output_directions") or [0] * outs
    return [
        *states,
        *(
            _stacked(evaluation, part[::-1] if back else part, axis)
            for part, axis, back in zip(kept, out_axes, reversed_outputs)
        ),
    ]


def _slice(value: Value, axis: int, place: int) -> Value:
    return each_pass([value], lambda parts: np.take(parts[0], place, axis))


def sequence_map(evaluation: Evaluation, node: Node, inputs: Inputs, scope: Scope) -> list[Value]:
    """SequenceMap: a subgraph for every item of a sequence."""
    body = node.get("body")
    given = _present(inputs, len(evaluation.passes))
    length = len(given[0].exact)
    kept: list[list[Value]] = [[] for _ in body.outputs]
    for place in range(length):
        items = [_item(value, place) if isinstance(value.exact, list) else value for value in given]
        found = _present(evaluation.run(body, dict(zip(body.inputs, items)), scope), len(evaluation.passes))
        for part, value in zip(kept, found):
            part.append(value)
    return [each_pass(part, list) if part else evaluation.value([]) for part in kept]


def _item(value: Value, place: int) -> Value:
    return Value(tuple(each[place] for each in value.by_pass), value.dtype)


Control = Callable[["Evaluation", Node, Inputs, "Scope"], "list[Value]"]
CONTROL: Mapping[str, Control] = {"If": branch, "Loop": loop, "Scan": scan, "SequenceMap": sequence_map}
