"""Captured tensors in the layout of the reference."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .layer_kinds import SPATIAL


def layouts(captured: Tensor, shape: Sequence[int], layer: nn.Module | None, channels_last: bool) -> list[Tensor]:
    """What a captured tensor may be in the reference's layout; [] when neither layout has this shape.

    shape: of the reference's tensor.
    channels_last: whether the framework keeps images as N,H,W,C. Where both layouts fit, as for a square image with as
        many channels, a convolution can only have one of them; for a ReLU both are returned.
    """
    shape = tuple(shape)
    same = [captured] if tuple(captured.shape) == shape else []
    if channels_last and captured.dim() in (3, 4, 5):
        channels_first = captured.movedim(-1, 1)
        if tuple(channels_first.shape) == shape:
            turned = channels_first.contiguous()
            return [turned] if isinstance(layer, SPATIAL) else [*same, turned]
    return same


def first_layout(captured: Tensor, shape: Sequence[int], layer: nn.Module | None, channels_last: bool) -> Tensor | None:
    """The first of its layouts, or None."""
    return next(iter(layouts(captured, shape, layer, channels_last)), None)


def nearest(
    captured: Sequence[Tensor], reference: Tensor, layer: nn.Module, channels_last: bool
) -> tuple[Tensor, Tensor] | None:
    """The captured tensor that stands for one of the reference's, and its form in the reference's layout.

    Returns None when no shape fits.

    Of several with the same shape it is the nearest, because frameworks differ in the order in which they pass the
    states of a cell.
    """
    fitting = [(tensor, form) for tensor in captured for form in layouts(tensor, reference.shape, layer, channels_last)]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return min(fitting, key=lambda pair: distance(pair[1], reference))


def distance(captured: Tensor, reference: Tensor) -> float:
    """The Euclidean distance of two tensors of one shape."""
    return float(torch.dist(captured.double(), reference.double()))
