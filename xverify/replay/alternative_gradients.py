"""Recognises gradients that differ from torch's and are right nevertheless."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..verdict import limits
from ..verdict.findings import Explanation, Finding
from ..verdict.limits import UNIT
from .difference import Difference
from .tensors import rms

THROUGH_MAXIMUM = Explanation(
    "loss through the maximum",
    "its cross-entropy is differentiated through the maximum that it subtracts, which leaves the rounding of a sum over all "
    "classes at the largest logit",
    rounding=True,
)


ZERO_SUM = 1e-6  # of the sum of all sizes of a row


def is_through_maximum(difference: Difference, logits: Tensor) -> bool:
    """Whether the gradient of the logits is right, except at the largest logit of each row.

    At the largest logit it may have the rounding error of a sum over all classes. Such a gradient of a cross-entropy adds up to
    zero in each row; the gradient of something else is no gradient of logits.

    difference: of the gradient.
    logits: (..., classes), as they were captured.
    """
    captured, exact = difference.captured, difference.floors.exact
    largest = logits == logits.amax(-1, keepdim=True)
    if bool((exact.sum(-1).abs() > ZERO_SUM * exact.abs().sum(-1)).any()):
        return False
    classes = captured.shape[-1]
    others = replace(difference, captured=captured * ~largest, terms=classes)
    slip = float((captured - exact)[largest].abs().max())
    whole = float(exact.abs().sum(-1).max())
    return others.is_equal_to(exact * ~largest) and slip <= limits.EQUAL_R * limits.growth(classes) * UNIT * whole


def judge_without_ties(layer: Any, x: Tensor, difference: Difference) -> Finding:
    """Judge the gradient of a max-pool's input without the windows whose largest value is in several places.

    A framework may pass the gradient of such a window to any of these places; every choice is right.

    x: the input.
    difference: of the whole gradient.
    """
    x = x.double()
    if x.dim() != 4:
        return difference.finding
    free = _free_of_ties(layer, x)
    return replace(difference, captured=difference.captured * free).judge(difference.floors.exact * free)


def _free_of_ties(layer: Any, x: Tensor) -> Tensor:
    """A mask of the input (N, C, H, W): True where a place is in no tie for the largest value of a window."""
    # A rising or falling ramp far below the resolution of float32 changes only the choice between equal values.
    places = x.shape[-2] * x.shape[-1]
    ramp = torch.linspace(0, 1e-10 * rms(x), places, dtype=x.dtype).view(x.shape[-2:])
    settings = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, True
    first, last = (nn.functional.max_pool2d(each, *settings)[1].flatten(2) for each in (x - ramp, x + ramp))
    tied = (first != last).to(x.dtype)
    ties = torch.zeros_like(x).flatten(2)
    for where in (first, last):
        ties.scatter_add_(2, where, tied)
    # In a tie of three places, one place is neither the first nor the last.
    tied_values = x.flatten(2).gather(2, first)[tied > 0]
    return ((ties == 0) & ~torch.isin(x.flatten(2), tied_values)).view_as(x)
