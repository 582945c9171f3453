"""The noise of a graph that treats all items of its input alike, measured on the first item.

A perturbed evaluation takes as long as an exact one, and several are needed. Where they are made on one item, its noise holds for
the others by the sizes and channels of their values (see ``verdict.tables.spread``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ....verdict.sizes import rms
from ....verdict.tables import spread, stands_for_others
from ..evaluation import ERRORS, After, evaluate
from ..kinds import QUANTISING
from ..model import Graph, Node
from ..reach import Reach
from ..values import Value, is_float
from .noise import OutputNoise, noise
from .selections import noise_moves

ENOUGH_VALUES = 256  # of an output in one item
SAME = 1e-9  # relative difference between float64 outputs of one item alone and among the others, which other sums give
# Operators after which a value is one of a few, so that another item may be near another decision, and those with a body.
DECIDING = QUANTISING | {
    "ArgMax", "ArgMin", "Bernoulli", "Ceil", "Compress", "Equal", "Floor", "Greater", "GreaterOrEqual", "Hardmax", "If", "Less",
    "LessOrEqual", "Loop", "Mod", "NonMaxSuppression", "NonZero", "QuantizeLinear", "Round", "Scan", "Sign", "TopK", "Unique",
    "Where",
}  # fmt: skip


def noise_of_one_item(
    graph: Graph,
    inputs: Mapping[str, Any],
    seed: int,
    samples: int,
    approximated: Collection[str],
    watch: After | None = None,
    reach: Reach | None = None,
) -> dict[str, OutputNoise] | None:
    """The exact outputs of a graph with their noise, as ``noise.noise`` returns them, without the values of every pass.

    None for a graph that does not compute each item by itself, or makes decisions, and where one item is too little or gates may
    decide otherwise in another one.
    """
    if len(inputs) != 1 or any(node.op in DECIDING or node.subgraphs for _, node in graph.walk()):
        return None
    ((name, data),) = inputs.items()
    if not is_float(data) or data.ndim < 2 or data.shape[0] < 2:
        return None
    moved = list[Node]()

    def after(node: Node, arguments: Sequence[Value | None], _: Sequence[Value]) -> None:
        if noise_moves(node, arguments):
            moved.append(node)

    try:
        measured = noise(graph, {name: data[:1]}, seed, samples, approximated=approximated, watch=after)
    except ERRORS:
        return None
    if moved:
        return None
    if not all(_is_enough(each.exact) and stands_for_others(each.exact, each.noise) for each in measured.values()):
        return None
    exact = evaluate(graph, inputs, watch=watch, reach=reach)
    if not all(_first_is(exact.get(key), each.exact) for key, each in measured.items()):
        return None
    return {
        key: OutputNoise(exact[key], spread(exact[key], each.exact, each.noise), each.dtype)
        for key, each in measured.items()
    }


def _is_enough(exact: Any) -> bool:
    return isinstance(exact, np.ndarray) and is_float(exact) and exact.ndim > 1 and exact.size >= ENOUGH_VALUES


def _first_is(exact: Any, alone: Any) -> bool:
    """Whether the first item of an output is what the graph computes from the first item of its input alone."""
    if (
        not isinstance(exact, np.ndarray)
        or exact.ndim != alone.ndim
        or exact.shape[1:] != alone.shape[1:]
        or len(alone) != 1
    ):
        return False
    with np.errstate(invalid="ignore"):
        difference = exact[:1] - alone
    return bool(np.isfinite(difference).all()) and rms(difference) <= SAME * rms(alone)
