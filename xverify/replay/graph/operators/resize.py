"""Resizing and sampling of images."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..values import is_float, tensor
from .registry import Call, operator

Coordinates = Any  # numpy array of the place in the input of every place of the output, along one axis
NEAREST: dict[str, Callable[[Coordinates], Coordinates]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _coordinates(call: Call, size: int, out: int, scale: float, roi: tuple[float, float]) -> Coordinates:
    """The place in the input of every place of the output."""
    older = call.node.op == "Upsample" or call.node.version < 11
    kind = "asymmetric" if older else call.get("coordinate_transformation_mode", "half_pixel")
    x = np.arange(out).astype(call.dtype)
    scale = call.dtype(scale * (1 + call.jitter))
    if kind == "align_corners":
        return x * call.dtype((size - 1) / max(1, out - 1) * (1 + call.jitter))
    if kind == "asymmetric":
        return x / scale
    if kind == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if kind == "tf_crop_and_resize":
        start, end = roi
        if out == 1:
            return x + call.dtype(0.5 * (start + end) * (size - 1))
        return call.dtype(start * (size - 1)) + x * call.dtype(
            (end - start) * (size - 1) / (out - 1) * (1 + call.jitter)
        )
    if kind == "pytorch_half_pixel" and out == 1:
        return x
    half = (x + call.dtype(0.5)) / scale - call.dtype(0.5)
    if kind == "half_pixel_symmetric":
        half = half + call.dtype(size / 2 * (1 - out / (float(scale) * size)))
    return half


def _cubic(a: float) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        x = np.abs(x)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return kernel


def _linear(x: Any) -> Any:
    return np.clip(1 - np.abs(x), 0, None)


def _axis(call: Call, x: Tensor, axis: int, out: int, scale: float, roi: tuple[float, float]) -> Tensor:
    """Resize one axis."""
    size, mode = x.shape[axis], call.get("mode", "nearest")
    at = _coordinates(call, size, out, scale, roi)
    if mode == "nearest":
        older = call.node.op == "Upsample" or call.node.version < 11
        rule = "floor" if older else call.get("nearest_mode", "round_prefer_floor")
        # In float64, a place that is a tie in exact arithmetic is made one.
        places = NEAREST[rule](np.round(at, 9) if call.dtype is np.float64 else at)
        return x.index_select(axis, torch.from_numpy(np.clip(places, 0, size - 1).astype(np.int64)))
    kernel, support = (_cubic(call.get("cubic_coeff_a", -0.75)), 2) if mode == "cubic" else (_linear, 1)
    antialias = bool(call.get("antialias", 0))
    shrink = min(1.0, scale) if antialias else 1.0
    reach = math.ceil(support / shrink)
    places = np.floor(at).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
    weights = kernel((places - at[:, None]) * call.dtype(shrink))
    if call.get("exclude_outside", 0):
        weights = np.where((places < 0) | (places >= size), 0.0, weights)
    if antialias or call.get("exclude_outside", 0):
        weights = weights / weights.sum(1, keepdims=True)
    places = np.clip(places, 0, size - 1)
    form = [-1 if other == axis else 1 for other in range(x.dim())]
    y = x.new_zeros([out if other == axis else length for other, length in enumerate(x.shape)])
    for tap in range(places.shape[1]):
        weight = torch.from_numpy(np.ascontiguousarray(weights[:, tap])).to(x.dtype)
        if bool(weight.any()):
            y.addcmul_(x.index_select(axis, torch.from_numpy(places[:, tap].copy())), weight.view(form))
    if call.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        outside = torch.from_numpy((at < 0) | (at > size - 1)).view(form)
        y = torch.where(outside, call.get("extrapolation_value", 0.0), y)
    return y


@operator("Resize", "Upsample")
def resize(call: Call, x: Any, *more: Any) -> Any:
    """An image of another size: nearest, linear or cubic interpolation along one axis after the other."""
    roi, scales, sizes = _arguments(call, more)
    image = tensor(x if is_float(x) else x.astype(np.float64))
    axes = [axis % image.dim() for axis in call.get("axes") or range(image.dim())]
    if sizes is not None:
        sizes, scales = _kept_aspect(call, [image.shape[axis] for axis in axes], [int(size) for size in sizes])
    else:
        scales = [float(scale) for scale in scales]
        # Runtimes multiply in float32: 0.7 · 10 is 7.
        sizes = [math.floor(np.float32(image.shape[axis]) * np.float32(scale)) for axis, scale in zip(axes, scales)]
    crop = call.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    for index, (axis, size, scale) in enumerate(zip(axes, sizes, scales)):
        part = (float(roi[index]), float(roi[index + len(axes)])) if crop else (0.0, 1.0)
        if size != image.shape[axis] or scale != 1.0 or (crop and part != (0.0, 1.0)):
            image = _axis(call, image, axis, size, scale, part)
    return image if is_float(x) else image.numpy().astype(x.dtype)


def _arguments(call: Call, more: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """Region, scales and sizes; None for those that are not given."""
    if call.node.op == "Upsample" or call.node.version < 11:
        return None, (more[0] if more else call.get("scales")), None
    roi, scales, sizes = (*more, None, None, None)[:3]
    return roi, scales, (None if sizes is None or not np.size(sizes) else sizes)


def _kept_aspect(call: Call, lengths: list[int], sizes: list[int]) -> tuple[list[int], list[float]]:
    """Sizes and scales when sizes are given."""
    scales = [size / length for size, length in zip(sizes, lengths)]
    policy = call.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes, scales
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [math.floor(scale * length + 0.5) for length in lengths], [scale] * len(sizes)


@operator("GridSample")
def grid_sample(call: Call, x: Any, grid: Any) -> Any:
    """Values of an image at given places."""
    modes = {
        "linear": "bilinear",
        "bilinear": "bilinear",
        "nearest": "nearest",
        "cubic": "bicubic",
        "bicubic": "bicubic",
    }
    return F.grid_sample(
        tensor(x),
        tensor(grid),
        mode=modes[call.get("mode", "linear")],
        padding_mode=call.get("padding_mode", "zeros"),
        align_corners=bool(call.get("align_corners", 0)),
    )
