"""Pooling. Largest values and sums of a window are taken one axis after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
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
        zip(window.kernel, window.strides, window.dilations, window.begin, window.outputs)
    ):
        needed = (count - 1) * stride + dilation * (kernel - 1) + 1
        after = needed - x.shape[axis + 2] - before
        if before or after:
            x = F.pad(x, [0, 0] * (x.dim() - 3 - axis) + [before, after], value=padding)
        x = reduce(combine, [window.part(x, axis, at) for at in range(kernel)])
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
    inside = window
    if call.get("count_include_pad", 0):
        counted = F.pad(counted, window.sides, value=1.0)
        inside = replace(window, begin=(0,) * len(window.begin))
    return _pool(image, window, torch.add, 0.0) / _pool(counted, inside, torch.add, 0.0)


@operator("LpPool")
def lp_pool(call: Call, x: Any) -> Any:
    """The p-norm of every window."""
    image, p = tensor(x), call.node.get("p", 2)
    window = windows(call, image.shape[2:], call.get("kernel_shape"))
    return _pool(image.abs() ** p, window, torch.add, 0.0) ** (1.0 / p)


def _global(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Callable[..., Any]:
    """An operator over each whole channel."""

    def run(call: Call, x: Any) -> Any:
        image = tensor(x)
        return function(image, tuple(range(2, image.dim()))) if image.dim() > 2 else image

    return run


operator("GlobalAveragePool")(_global(lambda image, axes: image.mean(axes, keepdim=True)))
operator("GlobalMaxPool")(_global(lambda image, axes: image.amax(axes, keepdim=True)))


@operator("GlobalLpPool")
def global_lp_pool(call: Call, x: Any) -> Any:
    """The p-norm of every channel."""
    return torch.linalg.vector_norm(tensor(x), call.node.get("p", 2), dim=tuple(range(2, x.ndim)), keepdim=True)
