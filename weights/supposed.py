"""A supposed mistake in the weights of a language model, undone in a sample of their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .canonical import Array
from .language_parts import Part, Side
from .quantised import Values, outside

SAMPLE = 2**18  # values that are compared for a supposed mistake

Sides = tuple[Side, Side]
Parts = tuple[Part, Part]


@dataclass(frozen=True)
class Cause:
    """says: how the left part follows from the right one, as a phrase. whole: whether it explains nearly all values.

    parts: the two with the layout that was found, where a right file may have it; else None.
    """

    says: str = ""
    whole: bool = True
    parts: Parts | None = None


def sampled_values(sides: Sides, parts: Parts) -> tuple[Values, Values]:
    """The values of the same rows of both parts, as many as are sampled."""
    which = sampled(parts[0])
    return sides[0].values(parts[0], which), sides[1].values(parts[1], which)


def sampled(part: Part) -> Array:
    """The numbers of the rows of a part that are sampled."""
    rows, columns = part.shape
    return np.unique(np.linspace(0, rows - 1, min(rows, max(8, SAMPLE // columns))).astype(np.int64))


def fits(mine: Values, theirs: Values) -> bool:
    """Whether nearly all values are right."""
    return float(outside(mine, theirs).mean()) <= max(mine.spare, theirs.spare)
