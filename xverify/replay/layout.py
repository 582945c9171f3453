"""Captured tensors in the layout of the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..float64.layer_kinds import SPATIAL


def layouts(captured: Tensor, shape: Sequence[int], layer: nn.Module | None, channels_last: bool) -> list[Tensor]:
    """The tensors in the reference's layout that a captured tensor may stand for; [] when no layout has this shape.

    Both layouts fit a square image with as many channels as rows. For a convolution only one of them is possible; for a ReLU
    both are returned. So are both for a recurrent layer whose sequence is as long as the batch.

    shape: shape of the reference's tensor.
    channels_last: whether the framework keeps images as N,H,W,C.
    """
    shape = tuple(shape)
    same = [captured] if tuple(captured.shape) == shape else []
    if channels_last and captured.dim() in (3, 4, 5):
        channels_first = captured.movedim(-1, 1)
        if tuple(channels_first.shape) == shape:
            turned = channels_first.contiguous()
            return [turned] if isinstance(layer, SPATIAL) else [*same, turned]
    if isinstance(layer, nn.RNNBase) and captured.dim() == 3:  # a sequence may have time before batch
        turned = captured.transpose(0, 1).contiguous()
        return [*same, turned] if tuple(turned.shape) == shape else same
    if not same and (_without_ones(captured.shape) == _without_ones(shape) or _are_rows(captured.shape, shape)):
        return [captured.reshape(shape)]
    return same


def _without_ones(shape: Sequence[int]) -> list[int]:
    """The sizes other than one, in order: a global pool may return (N, C) or (N, C, 1, 1)."""
    return [size for size in shape if size != 1]


def _are_rows(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether one shape has all axes but the last as a single one: a linear layer may be given (N·T, C) or (N, T, C)."""
    rows, axes = sorted((tuple(one), tuple(other)), key=len)
    return len(rows) == 2 < len(axes) and rows == (math.prod(axes[:-1]), axes[-1])


def first_layout(captured: Tensor, shape: Sequence[int], layer: nn.Module | None, channels_last: bool) -> Tensor | None:
    """The first result of ``layouts``; None when there is none."""
    return next(iter(layouts(captured, shape, layer, channels_last)), None)


def nearest(
    captured: Sequence[Tensor], reference: Tensor, layer: nn.Module, channels_last: bool
) -> tuple[Tensor, Tensor] | None:
    """The captured tensor that corresponds to a tensor of the reference, and the same tensor in the reference's layout.

    Among several tensors of the same shape it is the nearest one, because frameworks pass the states of a cell in different
    orders. Returns None when no shape fits.
    """
    found = fitting(captured, reference, layer, channels_last)
    return None if found is None else (captured[found[0]], found[2])


def fitting(
    captured: Sequence[Tensor], reference: Tensor, layer: nn.Module, channels_last: bool
) -> tuple[int, int, Tensor] | None:
    """The captured tensor of ``nearest``: its place, the place of its layout in ``layouts``, and the tensor in that layout."""
    choices = [
        (which, place, turned)
        for which, tensor in enumerate(captured)
        for place, turned in enumerate(layouts(tensor, reference.shape, layer, channels_last))
    ]
    if len(choices) < 2:
        return choices[0] if choices else None
    return min(choices, key=lambda choice: distance(choice[2], reference))


def distance(captured: Tensor, reference: Tensor) -> float:
    """The Euclidean distance of two tensors of one shape."""
    return float(torch.dist(captured.double(), reference.double()))
