"""Faults of pooling, and of resizing an image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from .changes import combined, computing, with_attributes, with_input, with_input_and_output
from .fault import Forward, PortFault


def _ceil_mode(layer: Any) -> PortFault:
    return PortFault(
        "ceil_mode",
        f"has ceil_mode={not layer.ceil_mode}; the reference {layer.ceil_mode}",
        with_attributes(ceil_mode=not layer.ceil_mode),
    )


def max_pool(layer: Any) -> Iterator[PortFault]:
    """Another size of the output, padding by zeros, and an average in place of the maximum."""
    yield _ceil_mode(layer)
    padding = layer.padding if isinstance(layer.padding, tuple) else (layer.padding,) * 2
    if any(padding):
        around = (padding[1], padding[1], padding[0], padding[0])
        yield PortFault(
            "zero padding",
            "pads with zeros, not with minus infinity",
            combined(with_input(lambda x: F.pad(x, around)), with_attributes(padding=0)),
        )

    def average(layer: Any, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode)

    yield PortFault("average for maximum", "takes the average, not the maximum", computing(average))


def average_pool(layer: Any) -> Iterator[PortFault]:
    """Another size of the output, and the padding counted or left out."""
    yield _ceil_mode(layer)
    counted = not layer.count_include_pad
    yield PortFault(
        "padding counted",
        f"{'counts' if counted else 'leaves out'} the padding in its averages",
        with_attributes(count_include_pad=counted),
    )


def adaptive_average_pool(layer: Any) -> Iterator[PortFault]:
    """A maximum or a sum in place of the average."""
    yield PortFault(
        "maximum for average",
        "takes the maximum, not the average",
        computing(lambda layer, x: F.adaptive_max_pool2d(x, layer.output_size)),
    )
    yield PortFault(
        "sum for average",
        "sums, and does not average",
        with_input_and_output(lambda x, y: y * (x.shape[2] * x.shape[3] / (y.shape[2] * y.shape[3]))),
    )


def upsample(layer: Any) -> Iterator[PortFault]:
    """Other modes of interpolation, and another alignment of the corners."""
    if layer.mode == "bilinear":
        other = not layer.align_corners
        says = f"has align_corners={other}; the reference {bool(layer.align_corners)}"
        yield PortFault("align_corners", says, _resized(align_corners=other))
        nearest = _resized(mode="nearest", align_corners=None)
        yield PortFault("nearest for bilinear", "takes the nearest value, not the bilinear mean", nearest)
        yield PortFault("bicubic for bilinear", "interpolates bicubically", _resized(mode="bicubic"))
    elif layer.mode == "nearest":
        bilinear = _resized(mode="bilinear", align_corners=False)
        yield PortFault("bilinear for nearest", "interpolates bilinearly", bilinear)
        yield PortFault("nearest rounding", "rounds to the nearest value, not down", _resized(mode="nearest-exact"))


def _resized(**values: Any) -> Forward:
    """Interpolate with other settings than the layer's."""
    names = ("size", "scale_factor", "mode", "align_corners")
    return computing(lambda layer, x: F.interpolate(x, **{**{name: getattr(layer, name) for name in names}, **values}))
