"""Faults of convolutions: the layout of the kernel, the padding, and the stride."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .changes import computing, with_attributes, with_weight
from .fault import PortFault


def convolution(layer: Any) -> Iterator[PortFault]:
    """Faults of a convolution. A transposed convolution has only the faults of its kernel's layout."""
    yield from _kernel_layout(layer)
    if isinstance(layer, nn.modules.conv._ConvTransposeNd):
        return
    if layer.weight.shape[1] > 1:
        yield PortFault(
            "input channels reversed",
            "takes its input channels in reverse order, as BGR for RGB",
            with_weight("weight", lambda w: w.flip(1)),
        )
    if len(layer.kernel_size) == 2:
        yield from _padding(layer)
        yield from _stride(layer)


def _kernel_layout(layer: Any) -> Iterator[PortFault]:
    spatial, weight = len(layer.kernel_size), layer.weight
    if spatial == 2 and layer.kernel_size[0] == layer.kernel_size[1] > 1:
        yield PortFault(
            "kernel transposed",
            "its kernel has height and width exchanged",
            with_weight("weight", lambda w: w.transpose(2, 3)),
        )
    if max(layer.kernel_size) > 1:
        axes = tuple(range(2, 2 + spatial))
        yield PortFault(
            "kernel flipped", "its kernel is turned by half a circle", with_weight("weight", lambda w: w.flip(axes))
        )
    if weight.shape[0] == weight.shape[1] > 1:
        yield PortFault(
            "channels transposed",
            "its kernel has input and output channels exchanged",
            with_weight("weight", lambda w: w.transpose(0, 1)),
        )


def _padding(layer: Any) -> Iterator[PortFault]:
    if not (isinstance(layer.padding, tuple) and any(layer.padding)):
        return
    height, width = layer.padding
    for before, what in ((-1, "one less before and one more behind"), (1, "one more before and one less behind")):
        sides = (width + before, width - before, height + before, height - before)
        says = f'pads {what} each axis, as "same" does at a stride of 2'
        yield PortFault("asymmetric padding", says, computing(partial(_padded, sides=sides)))
    for mode in ("reflect", "replicate", "circular"):
        if layer.padding_mode != mode:
            says = f"pads by {mode}; the reference by {layer.padding_mode}"
            sides = (width, width, height, height)
            yield PortFault("padding mode", says, computing(partial(_padded, sides=sides, mode=mode)))


def _stride(layer: Any) -> Iterator[PortFault]:
    for stride in (1, 2):
        if layer.stride[0] != stride:
            says = f"has stride {stride}; the reference {layer.stride[0]}"
            yield PortFault("stride", says, with_attributes(stride=(stride, stride)))


def _padded(layer: Any, x: Tensor, sides: tuple[int, ...], mode: str = "constant") -> Tensor:
    """A convolution of an image that is padded otherwise. sides: for F.pad, which takes the last axis first."""
    x = F.pad(x, sides, mode=mode)
    return F.conv2d(x, layer.weight, layer.bias, layer.stride, 0, layer.dilation, layer.groups)
