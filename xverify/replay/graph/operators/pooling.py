"""Pooling. Largest values and sums of a window are taken one axis after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..values import is_float, tensor
from .registry import Call, operator
from .rest import compute
from .spatial import Windows, windows


def _pool(x: Tensor, window: Windows, combine: Callable[[Tensor, Tensor], Tensor], padding: float) -> Tensor:
    """Combine the values of every window. padding: value outside of the image."""
    for axis, (kernel, stride, dilation, before, count) in enumerate(
        zip(window.kernel, window.strides, window.dilations, window.begin, window.outputs), start=2
    ):
        needed = (count - 1) * stride + dilation * (kernel - 1) + 1
        after = needed - x.shape[axis] - before
        if before or after:
            x = F.pad(x, [0, 0] * (x.dim() - 1 - axis) + [before, after], value=padding)
        parts = [
            x[(slice(None),) * axis + (slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride),)]
            for at in range(kernel)
        ]
        x = parts[0]
        for part in parts[1:]:
            x = combine(x, part)
    return x


@operator("MaxPool")
def max_pool(call: Call, x: Any) -> Any:
    """The largest value of every window."""
    if not is_float(x) or len(call.node.outputs) > 1:
        return compute(call, x)
    image = tensor(x)
    return _pool(image, windows(call, image.shape[2:], call.get("kernel_shape")), torch.maximum, -torch.inf)


@operator("AveragePool")
def average_pool(call: Call, x: Any) -> Any:
    """The mean of every window, over the values inside of the image, or of the image and its padding."""
    image = tensor(x)
    window = windows(call, image.shape[2:], call.get("kernel_shape"))
    counted = image.new_ones((1, 1, *image.shape[2:]))
    if call.get("count_include_pad", 0):
        sides = [side for pair in zip(reversed(window.begin), reversed(window.end)) for side in pair]
        counted = F.pad(counted, sides, value=1.0)
        within = Windows(
            window.kernel, window.strides, window.dilations, (0,) * len(window.begin), window.end, window.outputs
        )
        return _pool(image, window, torch.add, 0.0) / _pool(counted, within, torch.add, 0.0)
    return _pool(image, window, torch.add, 0.0) / _pool(counted, window, torch.add, 0.0)


@operator("LpPool")
def lp_pool(call: Call, x: Any) -> Any:
    """The p-norm of every window."""
    image, p = tensor(x), call.node.get("p", 2)
    window = windows(call, image.shape[2:], call.get("kernel_shape"))
    return _pool(image.abs() ** p, window, torch.add, 0.0) ** (1.0 / p)


@operator("GlobalAveragePool")
def global_average_pool(call: Call, x: Any) -> Any:
    """The mean of every channel."""
    image = tensor(x)
    return image.mean(dim=tuple(range(2, image.dim())), keepdim=True) if image.dim() > 2 else image


@operator("GlobalMaxPool")
def global_max_pool(call: Call, x: Any) -> Any:
    """The largest value of every channel."""
    image = tensor(x)
    return image.amax(dim=tuple(range(2, image.dim())), keepdim=True) if image.dim() > 2 else image


@operator("GlobalLpPool")
def global_lp_pool(call: Call, x: Any) -> Any:
    """The p-norm of every channel."""
    image = tensor(x)
    return torch.linalg.vector_norm(image, call.node.get("p", 2), dim=tuple(range(2, image.dim())), keepdim=True)
