"""Convolutions. In float64, that of a large image is a sum of products of matrices, because torch's copies every window of it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..values import tensor
from .registry import Call, operator
from .spatial import Windows, halves, windows

ENOUGH_CHANNELS = 16  # with fewer, one product for each position of the kernel is slower than torch's convolution
# Results of a channel. With fewer, torch's convolution is faster: at 7x7 and 512 channels by 1.6, and at 56x56 slower by 1.4 to 4.
ENOUGH_PLACES = 28 * 28
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@operator("Conv")
def conv(call: Call, x: Any, w: Any, b: Any = None) -> Any:
    """A convolution."""
    x, w = tensor(x), tensor(w)
    y = convolve(x, w, windows(call, x.shape[2:], w.shape[2:]), call.get("group", 1))
    return y if b is None else y.add_(tensor(b).view(-1, *[1] * (x.dim() - 2)))


def convolve(x: Tensor, w: Tensor, window: Windows, groups: int) -> Tensor:
    """A convolution without a bias. The result is a new tensor."""
    if any(window.sides):
        x = F.pad(x, window.sides)
    rank = x.dim() - 2
    if x.dtype == torch.float64 and x.numel() and rank == 2:
        if groups == x.shape[1] and groups > 1:
            return _depthwise(x, w, window)
        large = min(w.shape[:2]) >= ENOUGH_CHANNELS and math.prod(window.outputs) >= ENOUGH_PLACES
        if groups == 1 and large and window.strides == (1, 1):
            return _by_products(x, w, window)
    if rank not in CONVOLUTIONS:
        raise ValueError(f"a convolution of {rank} spatial axes; there are implementations of 1, 2 and 3")
    return CONVOLUTIONS[rank](x, w, None, window.strides, 0, window.dilations, groups)


def _depthwise(x: Tensor, w: Tensor, window: Windows) -> Tensor:
    """A convolution of each channel by itself: a sum over the positions of the kernel."""
    multiple = w.shape[0] // x.shape[1]
    if multiple > 1:
        x = x.repeat_interleave(multiple, 1)
    y = x.new_zeros((x.shape[0], w.shape[0], *window.outputs))
    for position in itertools.product(*map(range, window.kernel)):
        part = x
        for axis, at in enumerate(position):
            part = window.part(part, axis, at)
        index = (slice(None), 0, *position)
        y.addcmul_(part, w[index].view(1, -1, 1, 1))
    return y


def _by_products(x: Tensor, w: Tensor, window: Windows) -> Tensor:
    """A convolution of stride 1 as one product of matrices for each position of the kernel.

    The rows of the padded image lie behind one another, so that a shift of the window is a shift of the start. The few results
    at the end of each row that belong to no window are cut off.
    """
    items, channels, _, width = x.shape
    height, columns = window.outputs
    flat = x.reshape(items, channels, -1)
    count = (height - 1) * width + columns
    y = x.new_empty((items, w.shape[0], height * width))
    down, right = window.dilations
    for item in range(items):
        out = y[item, :, :count]
        for row, column in itertools.product(*map(range, window.kernel)):
            start = row * down * width + column * right
            part = flat[item, :, start : start + count]
            if row == column == 0:
                torch.mm(w[:, :, row, column], part, out=out)
            else:
                out.addmm_(w[:, :, row, column], part)
    return y.view(items, w.shape[0], height, width)[..., :columns].contiguous()


@operator("ConvTranspose")
def conv_transpose(call: Call, x: Any, w: Any, b: Any = None) -> Any:
    """A transposed convolution: the result of the convolution without padding, cropped or widened."""
    x, w = tensor(x), tensor(w)
    rank = x.dim() - 2
    strides, dilations = call.get("strides") or [1] * rank, call.get("dilations") or [1] * rank
    extra = call.get("output_padding") or [0] * rank
    begin, end = _transposed_padding(call, x.shape[2:], w.shape[2:], strides, dilations, extra)
    y = TRANSPOSED[rank](x, w, None, strides, 0, 0, call.get("group", 1), dilations)
    sides = [
        side for pair in zip(reversed(begin), reversed(end), reversed(extra)) for side in (-pair[0], pair[2] - pair[1])
    ]
    y = F.pad(y, sides) if any(sides) else y
    return y if b is None else y + tensor(b).view(-1, *[1] * rank)


def _transposed_padding(
    call: Call, sizes: Any, kernel: Any, strides: Any, dilations: Any, extra: Any
) -> tuple[list[int], list[int]]:
    """What is cropped at the beginning and at the end of each axis."""
    rank = len(sizes)
    automatic, shape = call.get("auto_pad", "NOTSET"), call.get("output_shape")
    if shape is None and not automatic.startswith("SAME"):
        pads = call.get("pads") or [0] * (2 * rank)
        return list(pads[:rank]), list(pads[rank:])
    wanted = [size * stride for size, stride in zip(sizes, strides)] if shape is None else list(shape)[-rank:]
    spans = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, kernel)]
    total = [
        stride * (size - 1) + more + span - want
        for stride, size, more, span, want in zip(strides, sizes, extra, spans, wanted)
    ]
    if shape is None:
        total = [max(0, pad) for pad in total]
    return halves(total, upper=automatic == "SAME_UPPER")
