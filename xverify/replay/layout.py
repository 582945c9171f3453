"""Captured tensors in the layout of the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, permutations
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..float64.layer_kinds import ACTIVATION_LAYERS, SOFTMAXES, SPATIAL, is_torch_layer

NEAR = 1e-3  # relative distance of values that are at most rounded otherwise
CLEARLY = 10.0  # axes are read in another order where the values are then nearer by this factor
MOST_AXES = 5  # of a tensor all of whose orders are tried
SAMPLE = 4096  # values by which a tensor is recognised that is in no other order, which most are


class Fit(NamedTuple):
    """A captured tensor that corresponds to a tensor of the reference.

    which: its place among the captured tensors. place: that of its layout, see ``layout_at``. tensor: it in that layout.
    moved: whether its axes are in another order there, so that the array of the port is no longer known by its file.
    """

    which: int
    place: int
    tensor: Tensor
    moved: bool


@dataclass
class Axes:
    """Whether captured tensors may be read with their axes in another order, and whether one was."""

    any_order: bool = True
    other_order: bool = False


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


def other_orders(captured: Tensor, shape: Sequence[int], layer: nn.Module | None) -> Iterator[Tensor]:
    """The other tensors in the reference's layout that a captured tensor may stand for, where ``layouts`` has one: axes moved.

    Time may come before the items where both are as long, of images the channels last, and rows of all items together may have
    items or positions first. Only values can tell which order it is.
    """
    shape, given = tuple(shape), tuple(captured.shape)
    if isinstance(layer, nn.RNNBase):  # ``layouts`` has both
        return
    if not isinstance(layer, SPATIAL):
        axes = len(given)
        moved = 0 if _treats_values_alike(layer) or not captured.is_floating_point() else 1
        if given == shape and axes <= MOST_AXES:
            for order in list(permutations(range(axes - moved)))[1:]:
                turned = captured.permute(*order, *range(axes - moved, axes))
                if tuple(turned.shape) == shape:
                    yield turned.contiguous()
        if _are_rows(given, shape):
            rows, finer = sorted((given, shape), key=len)
            for order in list(permutations(range(len(finer) - 1)))[1:]:
                if finer == given:
                    yield captured.permute(*order, -1).reshape(rows)
                else:
                    moved_rows = captured.reshape(*(finer[axis] for axis in order), finer[-1])
                    yield moved_rows.permute(*map(order.index, sorted(order)), -1).contiguous()
    if given == shape and len(given) > 1:
        for first in range(2, given[0] // 2 + 1):
            if given[0] % first == 0:
                yield captured.unflatten(0, (first, -1)).transpose(0, 1).flatten(0, 1)


def _treats_values_alike(layer: nn.Module | None) -> bool:
    """Whether no axis of what a layer is given is that of its weights, as far as its class tells."""
    known = (ACTIVATION_LAYERS, nn.modules.dropout._DropoutNd, nn.Identity)
    return layer is None or not is_torch_layer(layer) or (isinstance(layer, known) and not isinstance(layer, SOFTMAXES))


def layout_at(
    place: int, captured: Tensor, shape: Sequence[int], layer: nn.Module | None, channels_last: bool
) -> Tensor:
    """One of the layouts of a captured tensor, with those of another order. place: as ``fitting`` has it."""
    return next(islice(every_layout(captured, shape, layer, channels_last), place, None))


def every_layout(
    captured: Tensor, shape: Sequence[int], layer: nn.Module | None, channels_last: bool
) -> Iterator[Tensor]:
    """The results of ``layouts``, and then those of ``other_orders``."""
    return chain(layouts(captured, shape, layer, channels_last), other_orders(captured, shape, layer))


def first_layout(captured: Tensor, shape: Sequence[int], layer: nn.Module | None, channels_last: bool) -> Tensor | None:
    """The first result of ``layouts``; None when there is none."""
    return next(iter(layouts(captured, shape, layer, channels_last)), None)


def nearest(
    captured: Sequence[Tensor], reference: Tensor, layer: nn.Module, channels_last: bool, axes: Axes | None = None
) -> tuple[Tensor, Tensor] | None:
    """The captured tensor that corresponds to a tensor of the reference, and the same tensor in the reference's layout.

    Among several tensors of the same shape it is the nearest one, because frameworks pass the states of a cell in different
    orders. Returns None when no shape fits.
    """
    found = fitting(captured, reference, layer, channels_last, axes)
    return None if found is None else (captured[found.which], found.tensor)


def fitting(
    captured: Sequence[Tensor], reference: Tensor, layer: nn.Module, channels_last: bool, axes: Axes | None = None
) -> Fit | None:
    """The captured tensor of ``nearest``.

    axes: says whether axes may be in another order, and notes it where they are.
    """
    shape = reference.shape
    plain = [layouts(tensor, shape, layer, channels_last) for tensor in captured]
    choices = [
        Fit(which, place, turned, isinstance(layer, nn.RNNBase) and turned is not captured[which])
        for which, found in enumerate(plain)
        for place, turned in enumerate(found)
    ]
    if not choices:
        return None
    best = choices[0]
    if len(choices) > 1:
        best = min(choices, key=lambda choice: distance(choice.tensor, reference))
    if (axes is not None and not axes.any_order) or _looks_near(best.tensor, reference):
        return best
    others = (
        (distance(turned, reference), Fit(which, place, turned, moved=True))
        for which, tensor in enumerate(captured)
        for place, turned in enumerate(other_orders(tensor, shape, layer), len(plain[which]))
        if plain[which]
    )
    apart, other = min(others, key=lambda each: each[0], default=(math.inf, best))
    if apart * CLEARLY >= distance(best.tensor, reference):
        return best
    if axes is not None:
        axes.other_order = True
    return other


def _looks_near(captured: Tensor, reference: Tensor) -> bool:
    """Whether some of the values are at most rounded otherwise."""
    some, right = sampled(captured, SAMPLE), sampled(reference, SAMPLE)
    return distance(some, right) <= NEAR * float(torch.linalg.vector_norm(right.double()))


def sampled(tensor: Tensor, values: int) -> Tensor:
    """About so many values, evenly spread over a tensor; 0: all."""
    return tensor.reshape(-1)[:: tensor.numel() // values] if 0 < values < tensor.numel() else tensor


def distance(captured: Tensor, reference: Tensor) -> float:
    """The Euclidean distance of two tensors of one shape."""
    return float(torch.dist(captured.double(), reference.double()))
