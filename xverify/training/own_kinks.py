"""Activations that cross their kinks, such as the zero of a ReLU: rounding decides on which side they are, and much may differ.

The reference's own steps with more rounding show them: their noise is larger than smooth functions let it be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..verdict.limits import EQUAL_RHO
from ..weights.canonical import Array
from .checks import MORE_ROUNDING
from .compared import Compared, rms
from .own_made import Weight
from .own_state import StateCompared
from .own_step import Weights

KINKS = 2.0  # times the growth of the rounding: noise that grows by more shows activations that cross their kinks
GROWTH = KINKS * MORE_ROUNDING

Arrays = Mapping[str, Array]


def beyond_kinks(update: Weights, coarse: Sequence[Arrays], fine: Sequence[Arrays]) -> Weights:
    """The weights without fault where kinks explain all that differ. These are then compared by the noise of more rounding.

    One weight that shows a kink is enough: in another one, the rounding of the weight itself may be larger than that of its
    gradient, and does not grow.

    coarse, fine: the noise of each step up to this one, with more rounding and without. The moments of an optimizer keep what
    the gradient of an earlier step gave them, so that a kink may be seen there.
    """
    again = {each.name: _beside(each, coarse[-1]) for each in update.failing}
    shown = any(
        beside is not None and (_grows(beside, each.compared) or _shows(_change(each.name), coarse, fine))
        for beside, each in zip(again.values(), update.failing)
    )
    if not shown or not all(each is not None and each.badness(EQUAL_RHO) <= 1 for each in again.values()):
        return update
    every = [replace(each, compared=again.get(each.name) or each.compared) for each in update.every]
    return replace(update, every=every, failing=(), kinked=True)


def state_beyond_kinks(held: StateCompared, coarse: Sequence[Arrays], fine: Sequence[Arrays]) -> StateCompared:
    """The state without failing values where kinks explain all that differ. coarse, fine: see ``beyond_kinks``."""
    return held.leaving(coarse[-1], lambda path: _shows(path, coarse, fine))


def _change(name: str) -> str:
    return f"noise/change/{name}"


def _shows(name: str, coarse: Sequence[Arrays], fine: Sequence[Arrays]) -> bool:
    """Whether the noise of any step shows a kink in this array. An optimizer may make its state in a later step than the first."""
    made = ((more[name], less[name]) for more, less in zip(coarse, fine) if name in more and name in less)
    return any(rms(more) > GROWTH * rms(less) for more, less in made)


def _beside(weight: Weight, noise: Arrays) -> Compared | None:
    """The change of a weight beside the noise of more rounding; None where the subject has it under another name."""
    if weight.parts != (weight.name,):
        return None
    return Compared.of(weight.found - weight.after, weight.change, noise[_change(weight.name)])


def _grows(coarse: Compared, fine: Compared) -> bool:
    """Whether the noise of more rounding shows a kink."""
    return coarse.floor > GROWTH * fine.floor or coarse.worst_share > GROWTH * fine.worst_share
