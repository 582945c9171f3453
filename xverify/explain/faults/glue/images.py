"""Faults of pooling, padding and resizing that glue code computes by functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F

from ....replay.operation import Compute, Operation
from .operation import Change, first_argument, others, with_argument, with_keywords

MODES = ("constant", "reflect", "replicate", "circular")
# The positional arguments of an average pooling.
NAMES = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")


def images(operation: Operation) -> Iterator[Change]:
    """All faults of pooling, padding and resizing that this operation may have."""
    name = operation.name
    if name in ("avg_pool1d", "avg_pool2d", "avg_pool3d"):
        yield from _average(operation)
    elif name in ("max_pool1d", "max_pool2d", "max_pool3d"):
        yield from _maximum(operation)
    elif name.startswith("adaptive_"):
        average = "_avg_" in name
        mine, theirs = ("maximum", "average") if average else ("average", "maximum")
        other: Any = getattr(F, name.replace(*(("_avg_", "_max_") if average else ("_max_", "_avg_"))))
        size, says = operation.argument(1, "output_size"), f"takes the {mine}, not the {theirs}"
        yield Change(f"{mine} for {theirs}", says, first_argument(lambda x: other(x, size)))
    elif name == "pad":
        yield from _padding(operation)
    elif name == "interpolate":
        yield from _resizing(operation)
    elif name == "grid_sample":
        yield _corners(operation)
        yield from _sampling(operation)
    elif name == "affine_grid":
        corners = bool(operation.argument(2, "align_corners", default=False))
        says = f"has align_corners={not corners} in its affine_grid; the reference {corners}"
        yield Change("align_corners", says, with_argument(operation, 2, "align_corners", not corners))


def _sampling(operation: Operation) -> Iterator[Change]:
    """The interpolation between samples, the values outside of the image, and exchanged coordinates."""
    for place, key, usual, kind, what in (
        (2, "mode", ("bilinear", "nearest", "bicubic"), "interpolation", "interpolates by the mode"),
        (3, "padding_mode", ("zeros", "border", "reflection"), "padding mode", "pads its samples by the mode"),
    ):
        right = operation.argument(place, key, default=usual[0])
        says = f"{what} {{}}; the reference by {right}"
        yield from others(kind, says, usual, right, partial(with_argument, operation, place, key))
    exchanged = with_argument(operation, 1, "grid", lambda grid: grid.flip(-1))
    yield Change("coordinates exchanged", "has x and y exchanged in its sampling grid", exchanged)


def _average(operation: Operation) -> Iterator[Change]:
    ceil = bool(operation.argument(4, "ceil_mode", default=False))
    counted = bool(operation.argument(5, "count_include_pad", default=True))
    mine, theirs = ("leaves out", "counts") if counted else ("counts", "leaves out")
    says = f"{mine} the padding in its averages; the reference {theirs} it"
    yield Change(
        "padding counted", says, with_keywords(operation, NAMES, ceil_mode=ceil, count_include_pad=not counted)
    )
    yield Change("maximum for average", "takes the maximum, not the average", _pooled(operation, "max", ceil))
    yield Change("ceil_mode", f"has ceil_mode={not ceil}", with_argument(operation, 4, "ceil_mode", not ceil))


def _pooled(operation: Operation, other: str, ceil: bool) -> Compute:
    """The operation as the other kind of pooling, "avg" or "max", with the same windows."""
    function: Any = getattr(F, f"{other}_pool{operation.name[-2:]}")
    kernel, stride = operation.argument(1, "kernel_size"), operation.argument(2, "stride")
    padding = operation.argument(3, "padding", default=0)
    return first_argument(lambda x: function(x, kernel, stride or None, padding, ceil_mode=ceil))


def _maximum(operation: Operation) -> Iterator[Change]:
    kernel, stride = operation.argument(1, "kernel_size"), operation.argument(2, "stride")
    padding, ceil = operation.argument(3, "padding", default=0), bool(operation.argument(5, "ceil_mode", default=False))
    yield Change("average for maximum", "takes the average, not the maximum", _pooled(operation, "avg", ceil))
    around = padding if isinstance(padding, (tuple, list)) else (padding, padding)
    if operation.name == "max_pool2d" and any(around):
        sides = [around[-1], around[-1], around[0], around[0]]
        says = "pads with zeros before a maximum, not with minus infinity"
        compute = first_argument(lambda x: F.max_pool2d(F.pad(x, sides), kernel, stride or None))
        yield Change("zero padding", says, compute)


def _padding(operation: Operation) -> Iterator[Change]:
    sides, mode = operation.argument(1, "pad"), operation.argument(2, "mode", default="constant")
    if not isinstance(sides, (tuple, list)) or not any(sides):
        return
    exchanged = [side for pair in zip(sides[1::2], sides[::2]) for side in pair]
    if exchanged != list(sides):
        says = f"pads by {tuple(exchanged)}; the reference by {tuple(sides)}"
        yield Change("padding sides", says, with_argument(operation, 1, "pad", exchanged))
    for even in (_evenly(sides), [0] * len(sides)):
        if even is not None and list(even) != list(sides):
            says = f"pads by {tuple(even)}; the reference by {tuple(sides)}"
            yield Change("padding sides", says, with_argument(operation, 1, "pad", even))

    def padded(other: str) -> Compute:
        return first_argument(lambda x: F.pad(x, tuple(sides), mode=other))

    yield from others("padding mode", f"pads by the mode {{}}; the reference by {mode}", MODES, mode, padded)


def _evenly(sides: Sequence[int]) -> list[int] | None:
    """The same padding on both sides of each axis; None where that is not possible."""
    pairs = list(zip(sides[::2], sides[1::2]))
    return None if any((a + b) % 2 for a, b in pairs) else [(a + b) // 2 for a, b in pairs for _ in range(2)]


def _resizing(operation: Operation) -> Iterator[Change]:
    mode = operation.argument(3, "mode", default="nearest")
    if mode not in ("nearest", "nearest-exact", "area"):
        yield _corners(operation)
    size, factor = operation.argument(1, "size"), operation.argument(2, "scale_factor")

    def resized(other: str) -> Compute:
        return first_argument(lambda x: F.interpolate(x, size, factor, other))

    says = f"interpolates by the mode {{}}; the reference by {mode}"
    yield from others("interpolation", says, ("nearest", "nearest-exact", "bilinear", "bicubic"), mode, resized)


def _corners(operation: Operation) -> Change:
    corners = bool(operation.argument(4, "align_corners", default=False))
    says = f"has align_corners={not corners}; the reference {corners}"
    return Change("align_corners", says, with_argument(operation, 4, "align_corners", not corners))
