"""Recognises outputs that a port returns in another order than the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..weights.canonical import Array
from ..workload.keys import case_key
from .sizes import rms

NEAR = 1e-3  # relative difference (rms) of an output from the one that it holds
MARGIN = 100.0  # it must be nearer to that one than to its own by this factor
PART = 2**18  # values that are compared at a time

Arrays = Mapping[str, Array]


def swapped_outputs(outputs: Arrays, truth: Arrays, names: Sequence[str], cases: Sequence[int]) -> str | None:
    """A sentence on outputs that hold one another's values in every case; None when there are none.

    outputs, truth: what a subject computed and the exact outputs, by "case/output".
    names: the names of the outputs. cases: the input cases to compare.
    """
    held = {name: other for name in names if (other := _held(outputs, truth, name, names, cases)) is not None}
    if len(held) < 2 or set(held) != set(held.values()):
        return None
    pairs = ", ".join(f"`{name}` holds the reference's `{other}`" for name, other in held.items())
    return f"the outputs are swapped: {pairs}; return them in the reference's order"


def _held(outputs: Arrays, truth: Arrays, name: str, names: Sequence[str], cases: Sequence[int]) -> str | None:
    """The other output of the reference whose values this output holds; None when it holds no other one's."""
    others = {other: _apart(outputs, truth, name, other, cases) for other in names if other != name}
    nearest = min(others, key=lambda other: others[other], default=None)
    if nearest is None or not others[nearest] <= NEAR:
        return None
    return nearest if others[nearest] * MARGIN <= _apart(outputs, truth, name, name, cases) else None


def _apart(outputs: Arrays, truth: Arrays, name: str, other: str, cases: Sequence[int]) -> float:
    """The largest relative difference, over the cases, of an output from an output of the reference; infinite if shapes differ."""
    worst = 0.0
    for case in cases:
        if case_key(case, name) not in outputs:
            return math.inf
        mine, theirs = outputs[case_key(case, name)], truth[case_key(case, other)]
        if mine.shape != theirs.shape:
            return math.inf
        away, size = rms(mine, theirs), rms(theirs)
        worst = max(worst, away / size if size else (math.inf if away else 0.0))
    return worst
