"""Judges whole numbers that come from rounding. One step more or less is right where the exact value is nearly a tie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....verdict.findings import Finding
from ....verdict.limits import UNIT
from ...tensors import Place
from ..model import Node
from ..operators.quantized import UNROUNDED, dynamic_range, rounded
from ..operators.registry import Call
from ..values import Value, coarsest, exact_of

# Roundings between the exact value and the rounded step: of the scale, of the product or quotient, and of the sum.
ROUNDINGS = 3


def judge_steps(
    place: Place,
    node: Node,
    inputs: Sequence[Value | None],
    found: Any,
    index: int,
    returned: Mapping[str, Any],
    terms: int,
    step: float = 0.0,
) -> Finding:
    """The finding on one output of a node that quantises.

    A value that differs from the nearest step counts by its distance from the tie, in units of the rounding of the arithmetic.
    R and C are the largest of these; 0 when all values are the nearest ones. step: that of the node in ``steps`` of ``replay``.
    """
    steps, dtype = _unrounded(node, inputs, index, returned)
    if steps is None:
        exact = rounded(np.zeros(found.shape), found.dtype)
        return place.identical(terms) if np.array_equal(found, exact) else place.incomparable("not comparable", terms)
    if dtype != found.dtype:
        return place.incomparable(f"type {found.dtype}, and the file says {dtype}", terms)
    exact = rounded(steps, dtype)
    wrong = found != exact
    if not wrong.any():
        return place.identical(terms)
    steps = np.broadcast_to(steps, found.shape)
    limits = np.iinfo(dtype)
    inside = np.clip(steps[wrong], limits.min, limits.max)
    got, nearest = found[wrong].astype(np.float64), exact[wrong].astype(np.float64)
    # A value that was rounded the other way lies half a step from it, and the exact value on the far side of the tie.
    beyond = np.maximum(0.0, np.abs(got - inside) - 0.5)
    unit = max(UNIT, coarsest(inputs)) * ROUNDINGS
    noise = step + unit * np.maximum(1.0, np.abs(steps[wrong]))
    ratio = float(np.max(beyond / noise))
    error = np.abs(got - nearest)
    mean, largest = float(error.sum() / found.size), float(error.max())
    return Finding(
        place.layer, place.call, place.index, place.kind, place.what, ratio, ratio, terms, mean, largest, mean
    )


def _unrounded(node: Node, inputs: Sequence[Value | None], index: int, returned: Mapping[str, Any]) -> tuple[Any, Any]:
    """The exact result in steps, and its type."""
    arguments = exact_of(inputs)
    if node.op == "DynamicQuantizeLinear":
        return _dynamic(node, arguments[0], index, returned), np.dtype(np.uint8)
    with np.errstate(all="ignore"):
        return UNROUNDED[node.domain, node.op](Call.of(node, inputs), *arguments)


def _dynamic(node: Node, x: Any, index: int, returned: Mapping[str, Any]) -> Any:
    """The steps of DynamicQuantizeLinear. Its values are judged by the scale and zero point that the runtime computed."""
    scale, place = dynamic_range(x)
    if index == 2:
        return place
    names = node.outputs
    given_scale = float(np.reshape(returned.get(names[1], scale), ()))
    zero = float(np.reshape(returned.get(names[2], rounded(place, np.uint8)), ()))
    steps = np.clip(x / given_scale, -zero, 255 - zero)
    return np.where(np.abs(steps - np.trunc(steps)) == 0.5, np.rint(steps), steps) + zero
