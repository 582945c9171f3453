"""The noise of a whole graph: how much rounding at every node can change its outputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....float64.rounding import Noise
from ....verdict.local import sampled
from ..evaluation import EXACT, OWN, Evaluation, Scope, given
from ..kinds import QUANTISING, has_float
from ..model import Graph, Node
from ..values import Named, Value, convert, unit_roundoff
from .perturbed import Perturbed

SAMPLES = 4  # perturbed evaluations
DECISION = 10.0  # noise floors; a decision with a smaller margin may fall the other way


@dataclass(frozen=True)
class OutputNoise:
    """The exact value of one output of a graph, and its noise.

    exact: in float64; whole numbers in their own type.
    noise: of every value, the rms of the change by rounding at every node and of the error in the types of the file. For whole
        numbers 0, and infinity where rounding may change the decision.
    dtype: the type that the file declares.
    value: the output in every pass; None where only a part of the output was computed in all of them.
    """

    exact: Any
    noise: Any
    dtype: np.dtype[Any] | None
    value: Value | None = None


def noise(
    graph: Graph,
    inputs: Mapping[str, Any],
    seed: int = 0,
    samples: int = SAMPLES,
    own: bool = True,
    approximated: Collection[str] = (),
    fed: Mapping[str, Value] | None = None,
) -> dict[str, OutputNoise]:
    """The exact outputs of a graph with their noise. One pass evaluates the graph exactly and with perturbations, side by side.

    inputs: an array for each input by name.
    samples: number of perturbed evaluations.
    own: whether to evaluate the graph in its own types, too; that error is a part of the noise floor.
    approximated: names of nodes whose error is that of an approximation; see ``approximations``.
    fed: inputs that have a value of their own in every pass, in the place of those of ``inputs``: outputs of an earlier call of
        this function with the same passes.
    """
    perturbed = [Perturbed(Noise(seed + index), True, approximated) for index in range(samples)]
    uncertain: Named = {}

    def after(node: Node, arguments: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        for index, (name, value) in enumerate(zip(node.outputs, outputs)):
            if name in graph.outputs and not value.is_float and isinstance(value.exact, np.ndarray):
                uncertain[name] = _uncertain(graph, node, arguments, value, index, samples)

    evaluation = Evaluation([EXACT, *perturbed, *([OWN] if own else [])], after)
    found = evaluation.run(graph, {**given(evaluation, graph, inputs), **(fed or {})})
    return {
        own: OutputNoise(each.exact, _noise(each, samples, uncertain.get(own)), each.dtype, each)
        for name, value in zip(graph.outputs, found)
        if value is not None
        for own, each in _tensors(name, value)
    }


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
    if node.op in QUANTISING:
        for each in value.by_pass[1 : 1 + samples]:
            changes |= each != value.exact
        return changes
    if not has_float(arguments):
        return changes
    alone = Evaluation()
    scope = Scope(graph, {}, None, alone)
    for sample in range(1, 1 + samples):
        for size in (DECISION, -DECISION):
            moved = [_amplified(argument, sample, size) for argument in arguments]
            again = alone.step(node, moved, scope)
            if np.shape(again[index].exact) == changes.shape:
                changes |= again[index].exact != value.exact
    return changes


def _amplified(value: Value | None, sample: int, size: float) -> Value | None:
    if value is None or not value.is_float or not isinstance(value.exact, np.ndarray):
        return None if value is None else Value((value.exact,), value.dtype)
    with np.errstate(invalid="ignore"):
        moved = value.exact + size * (value.by_pass[sample] - value.exact)
    # A value that is finite in the exact pass alone is undetermined: it may be above any other, or below.
    beyond = np.where(np.isfinite(value.exact), np.copysign(np.inf, size), value.exact)
    return Value((np.where(np.isfinite(moved), moved, beyond),), value.dtype)
