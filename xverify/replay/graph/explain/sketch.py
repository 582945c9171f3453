"""Small summaries of large arrays, by which values of two graphs are compared without keeping them.

A sketch holds random projections. The projections of a difference are the differences of the projections, so the distance of two
arrays follows from their sketches (Johnson and Lindenstrauss, 1984). Moments tell arrays with the same values in another order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

PROJECTIONS = 24
IMAGE = 3  # axes of an array that may be an image
FEWEST = 32  # values whose moments tell that they are the same ones
SURE = 1e-5  # relative difference of moments, beyond which other values may have them
LOW, BEYOND = (
    0.1,
    1e5,
)  # a value beyond so many times this quantile of all sizes stands for a mask: beside it, no other would count
SAMPLE = 4096  # values whose quantile is taken
BLOCK = 1024  # values that share one set of random factors, up to the sign


@dataclass(frozen=True)
class Sketch:
    """The summary of one array.

    shape: its shape. whole: whether it holds whole numbers. size: its rms.
    moments: mean, mean square with the sign, and mean fourth power, in units of the rms.
    projections: random projections, whose rms is that of the array.
    turned: the same when the channels of an image are moved from one end of its axes to the other.
    """

    shape: tuple[int, ...]
    whole: bool
    size: float
    moments: Any
    projections: Any
    turned: tuple[Any, ...] = ()

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


def sketch(array: Any, turn: bool = False) -> Sketch:
    """The sketch of an array of numbers; infinite and missing values, and those of masks, count as 0.

    turn: whether ``turned`` is made, too.
    """
    array = np.asarray(array)
    wide = _without_masks(np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0))
    flat = torch.from_numpy(wide.reshape(-1))
    count = max(1, flat.numel())
    size = math.sqrt(float((flat * flat).sum()) / count)
    unit = flat / size if size else flat
    moments = (
        np.array([float(unit.mean()), float((unit * unit.abs()).mean()), float((unit**4).mean())])
        if count
        else np.zeros(3)
    )
    orders = [np.moveaxis(wide, 1, -1), np.moveaxis(wide, -1, 1)] if turn and array.ndim >= IMAGE else []
    turned = tuple(_project(torch.from_numpy(each.reshape(-1))) / math.sqrt(count) for each in orders)
    whole = array.dtype.kind in "iub"
    return Sketch(array.shape, whole, size, moments, _project(flat) / math.sqrt(count), turned)


def _without_masks(wide: Any) -> Any:
    """The values, with 0 in the place of those that are far beyond all others, such as -1e9 of a mask."""
    sizes = np.abs(wide.reshape(-1))
    some = sizes[:: max(1, sizes.size // SAMPLE)]
    some = some[some > 0]
    limit = BEYOND * float(np.quantile(some, LOW)) if some.size else 0.0
    return np.where(np.abs(wide) > limit, 0.0, wide) if limit and sizes.max() > limit else wide


def _project(flat: Any) -> Any:
    blocks = max(1, -(-flat.numel() // BLOCK))
    padded = torch.zeros(blocks * BLOCK, dtype=torch.float64)
    padded[: flat.numel()] = flat
    made = torch.Generator().manual_seed(0)
    factors = torch.randn(BLOCK, PROJECTIONS, dtype=torch.float64, generator=made)
    signs = torch.randint(0, 2, (blocks, PROJECTIONS), generator=made).double() * 2 - 1
    return ((padded.reshape(blocks, BLOCK) @ factors) * signs).sum(0).numpy()


def apart(mine: Sketch, theirs: Sketch) -> float:
    """The distance of two arrays / the size of the larger one, estimated; infinite when they have another number of values."""
    if mine.count != theirs.count:
        return math.inf
    size = max(mine.size, theirs.size)
    pairs = [(mine.projections, theirs.projections)]
    pairs += [(each, theirs.projections) for each in mine.turned] + [(mine.projections, each) for each in theirs.turned]
    away = min(math.sqrt(float(np.mean(np.square(one - other)))) for one, other in pairs)
    return away / size if size else 0.0


def reordered(mine: Sketch, theirs: Sketch, tolerance: float) -> bool:
    """Whether two arrays hold the same values in another order, as far as their moments tell."""
    if mine.count != theirs.count or mine.count < FEWEST or not mine.size or not theirs.size:
        return False
    tolerance = min(tolerance, SURE)
    near = abs(mine.size / theirs.size - 1) <= tolerance and bool(
        (abs(mine.moments - theirs.moments) <= 10 * tolerance).all()
    )
    return near and apart(mine, theirs) > 10 * tolerance
