"""Gradients that are smaller than the smallest number of float16, and therefore became zero."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..verdict.findings import Explanation
from ..verdict.limits import UNITS

UNDERFLOW = "underflow"
LEAST = 2.0**-24  # the smallest number of float16 above zero, and the distance between its smallest numbers
SHOWS = 0.01  # share of the values that must have become zero
OTHERS = 0.01  # share of the values that may differ for another reason
SCALE_THE_LOSS = (
    "scale the loss (--loss-scale dynamic here, torch.amp.GradScaler in torch, LossScaleOptimizer in Keras), or train in "
    "bfloat16"
)


def underflow(captured: Tensor, exact: Tensor, loss_scale: float) -> Explanation | None:
    """The explanation of a gradient that lost its small values; None where something else is wrong.

    captured: divided by the loss scale. exact: the right gradient.
    """
    least, size, exact = LEAST / loss_scale, exact.abs(), exact.double()
    zero = (captured == 0) & (size > 0) & (size < least)
    share = float(zero.double().mean())
    within = (captured.double() - exact).abs() <= least + 4 * UNITS["float16"] * size
    if share < SHOWS or float(within.double().mean()) < 1 - OTHERS:
        return None
    scale = f"at the loss scale {loss_scale:g}, " if loss_scale != 1 else "without loss scaling, "
    says = (
        f"{scale}{share:.0%} of its gradient is smaller than the smallest number of float16, {LEAST:.1g}, and became zero; "
        f"{SCALE_THE_LOSS}"
    )
    return Explanation(UNDERFLOW, says)


def unit_scale(gradients: Sequence[Tensor | None]) -> float:
    """The power of two that brings the largest of these values to about 1, so that they are far from the ends of float16."""
    largest = max((float(each.abs().max()) for each in gradients if each is not None and each.numel()), default=0.0)
    return 2.0 ** -math.floor(math.log2(largest)) if 0 < largest < math.inf else 1.0


def finite(gradients: Sequence[Tensor]) -> bool:
    """Whether no gradient has NaN or infinity."""
    return all(bool(torch.isfinite(each).all()) for each in gradients)
