"""How much two calls on one input differ, measured against the noise of rounding: pure functions over arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..weights.canonical import Array
from . import limits as rule
from .outputs import UNSTEADY, Arrays
from .ratios import Floor, noise_ratios
from .sizes import rms


@dataclass(frozen=True)
class Change:
    """The largest difference between the outputs of two calls on one input.

    share: rms of the difference / rms of the output.
    ratio: rms of the difference / noise floor of the output.
    limit: the largest ratio that rounding explains.
    error: rms of the error of the first call's output / rms of the output.
    """

    share: float = 0.0
    ratio: float = 0.0
    limit: float = rule.EQUAL_RHO
    error: float = 0.0

    @property
    def random(self) -> bool:
        """Whether the difference is more than rounding.

        Sums whose order differs from call to call change an output by about its noise floor, and not by more than the limit of an
        equal port.
        """
        return self.ratio > self.limit

    @property
    def large(self) -> bool:
        """Whether it is far more than any precision explains, so that it can be told in a result that is wrong anyway."""
        return self.share > UNSTEADY


def change(
    outputs: Arrays, again: Arrays, truth: Arrays, float32: Arrays, floors: Mapping[str, Floor] | None = None
) -> Change:
    """Compare the outputs of two calls on one input. All arrays are named "case/output".

    truth, float32, floors: as in ``outputs.compare``; they give the noise floor. Outputs of other shapes are left to ``compare``.
    """
    limit = rule.OWN_EQUAL if floors is None else rule.EQUAL_RHO
    worst = Change(limit=limit)
    for key in again:
        if key not in outputs or key not in truth:
            continue
        one, other = outputs[key], again[key]
        if one.shape != other.shape or one.shape != truth[key].shape or not one.size:
            continue
        share, ratio = _compared(one, other, truth[key], float32[key], None if floors is None else floors[key])
        if ratio > worst.ratio:
            size = rms(truth[key])
            worst = Change(share, ratio, limit, rms(one, truth[key]) / size if size else math.inf)
    return worst


def _compared(one: Array, other: Array, truth: Array, float32: Array, floor: Floor | None) -> tuple[float, float]:
    """(share, ratio) of one output; see Change. Whole numbers have no rounding."""
    if one.dtype.kind != "f" or truth.dtype.kind != "f":
        share = float(np.mean(one != other))
        return share, math.inf if share else 0.0
    if np.array_equal(one, other, equal_nan=True):
        return 0.0, 0.0
    difference, size = rms(one, other), rms(other)
    if not math.isfinite(difference):
        return math.inf, math.inf
    share = difference / size if size else math.inf
    if floor is None:
        floor = max(rms(float32, truth), rule.UNIT / math.sqrt(3) * rms(truth))
        return share, difference / floor if floor else math.inf
    return share, noise_ratios(one, other, truth, floor).whole
