"""Faults of pooling, padding and resizing that glue code computes by functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ....replay.operation import Compute, Operation
from .operation import Change, first_argument, with_argument

MODES = ("constant", "reflect", "replicate", "circular")


def images(operation: Operation) -> Iterator[Change]:
    """All faults of pooling, padding and resizing that this operation may have."""
    name = operation.name
    if name in ("avg_pool1d", "avg_pool2d", "avg_pool3d"):
        yield from _average(operation)
    elif name in ("max_pool1d", "max_pool2d", "max_pool3d"):
        yield from _maximum(operation)
    elif name.startswith("adaptive_"):
        yield from _adaptive(operation)
    elif name == "pad":
        yield from _padding(operation)
    elif name in ("interpolate", "grid_sample"):
        yield from _resizing(operation)


def _average(operation: Operation) -> Iterator[Change]:
    ceil = bool(operation.argument(4, "ceil_mode", default=False))
    counted = bool(operation.argument(5, "count_include_pad", default=True))
    mine, theirs = ("leaves out", "counts") if counted else ("counts", "leaves out")
    says = f"{mine} the padding in its averages; the reference {theirs} it"
    settings = {"ceil_mode": ceil, "count_include_pad": not counted}
    names = ("input", "kernel_size", "stride", "padding")

    def compute(args: tuple[object, ...], kwargs: dict[str, object]) -> Tensor:
        given = dict(zip(names, args)) | {key: value for key, value in kwargs.items() if key in names}
        result: Tensor = operation.function(**given, **settings)
        return result

    yield Change("padding counted", says, compute)
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
    if operation.name != "max_pool2d":
        return
    around = padding if isinstance(padding, (tuple, list)) else (padding, padding)
    if any(around):
        sides = [around[-1], around[-1], around[0], around[0]]
        yield Change(
            "zero padding",
            "pads with zeros before a maximum, not with minus infinity",
            first_argument(lambda x: F.max_pool2d(F.pad(x, sides), kernel, stride or None)),
        )


def _adaptive(operation: Operation) -> Iterator[Change]:
    average = "_avg_" in operation.name
    mine, theirs = ("maximum", "average") if average else ("average", "maximum")
    other: Any = getattr(F, operation.name.replace(*(("_avg_", "_max_") if average else ("_max_", "_avg_"))))
    size = operation.argument(1, "output_size")
    yield Change(
        f"{mine} for {theirs}", f"takes the {mine}, not the {theirs}", first_argument(lambda x: other(x, size))
    )


def _padding(operation: Operation) -> Iterator[Change]:
    sides, mode = operation.argument(1, "pad"), operation.argument(2, "mode", default="constant")
    if not isinstance(sides, (tuple, list)) or not any(sides):
        return
    exchanged = [side for pair in zip(sides[1::2], sides[::2]) for side in pair]
    if exchanged != list(sides):
        yield Change(
            "padding sides",
            f"pads by {tuple(exchanged)}; the reference by {tuple(sides)}",
            with_argument(operation, 1, "pad", exchanged),
        )
    for other in MODES:
        if other != mode:
            yield Change(
                "padding mode",
                f"pads by the mode {other}; the reference by {mode}",
                first_argument(lambda x, other=other: F.pad(x, tuple(sides), mode=other)),
            )


def _resizing(operation: Operation) -> Iterator[Change]:
    resize = operation.name == "interpolate"
    place = 3 if resize else 2
    mode, corners = operation.argument(place, "mode", default="nearest" if resize else "bilinear"), None
    corners = bool(operation.argument(4, "align_corners", default=False))
    if mode not in ("nearest", "nearest-exact", "area") or not resize:
        yield Change(
            "align_corners",
            f"has align_corners={not corners}; the reference {corners}",
            with_argument(operation, 4, "align_corners", not corners),
        )
    if not resize:
        return
    size, factor = operation.argument(1, "size"), operation.argument(2, "scale_factor")
    for other in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        if other != mode:
            yield Change(
                "interpolation",
                f"interpolates by the mode {other}; the reference by {mode}",
                first_argument(lambda x, other=other: F.interpolate(x, size, factor, other)),
            )
