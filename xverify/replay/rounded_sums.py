"""Recognises normalisations that are right except for the rounding of their long sums in float32.

These are batch norms in training, and group, instance and layer norms, which compute a mean and a variance of their input.

A sum of n terms loses at most n unit roundoffs (Higham 2002, 4.2). So a variance that is computed in one pass, which is
E[x²] - E[x]², loses up to 3n + 2 unit roundoffs of E[x²]. That may be all of the variance, so that eps alone is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.layer_kinds import BATCH_NORMS, is_training_norm
from ..float64.structures import as_float64
from ..verdict.findings import Explanation
from ..verdict.limits import UNIT
from .difference import Difference

SLACK = 1e-5  # relative tolerance of a fitted factor, because the captured values are in float32
ROUNDED_SUMS = Explanation(
    "rounded sums",
    "its mean and variance are sums in float32 that lose digits, as E[x²] - E[x]² in one pass does",
    rounding=True,
)


def has_sums(layer: nn.Module) -> bool:
    """Whether the layer normalises by a mean and a variance that it computes from its input."""
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm):
        return layer.training or not layer.track_running_stats
    return isinstance(layer, (nn.GroupNorm, nn.LayerNorm)) or is_training_norm(layer)


def output_has_rounded_sums(layer: Any, x: Tensor, difference: Difference) -> bool:
    """Whether the output of a normalisation is the exact one except for the rounding of its sums.

    Each normalised row, which is the values that share a mean and a variance, may be scaled by s and shifted by t as much as this
    rounding allows: y = w (s z + t) + b, where the exact output is w z + b.

    x: the input of the layer, in float64. difference: of the output.
    """
    exact, captured = difference.floors.exact, difference.captured
    if x.shape != exact.shape or captured.shape != exact.shape or not bool(torch.isfinite(captured).all()):
        return False
    axis = _axis(layer, x, exact)
    if axis is None:
        return False
    x, exact, captured = (tensor.movedim(axis, _own_axis(layer)) for tensor in (x, exact, captured))
    w, b = _spread_out(layer, layer.weight, 1.0, exact), _spread_out(layer, layer.bias, 0.0, exact)
    y, e, weights = (_rows(layer, tensor) for tensor in (as_float64(captured) - b, exact - b, w))
    inputs = _rows(layer, x)
    s, t = _scale_and_shift(y, e, weights)
    least, most = lossy_slopes(inputs, [1], layer.eps)
    if bool(((s < least) | (s > most) | (t.abs() > s * _lost_by_mean(inputs, layer.eps))).any()):
        return False
    near = _from_rows(layer, e * s + weights * t, exact) + b
    return difference.is_equal_to(near.movedim(_own_axis(layer), axis))


def _own_axis(layer: Any) -> int:
    """The axis of the weights in what torch's own layer takes; the last one of a layer norm."""
    return -1 if isinstance(layer, nn.LayerNorm) else 1


def _axis(layer: Any, x: Tensor, exact: Tensor) -> int | None:
    """The axis of the weights in the input; None where it is unknown.

    A class that is derived from a layer norm may move the channels to the end and back. An instance norm also takes a single item,
    without an axis of items.
    """
    if not isinstance(layer, nn.LayerNorm):
        return 1 if x.shape[1] == _channels(layer) else None
    shape = layer.normalized_shape
    for axis in (-1, 1) if len(shape) == 1 and x.dim() > 2 else (-1,):
        given, result = x.movedim(axis, -1), exact.movedim(axis, -1)
        if tuple(given.shape[-len(shape) :]) == tuple(shape):
            plain = nn.functional.layer_norm(given, shape, layer.weight, layer.bias, layer.eps)
            if torch.allclose(plain, result, rtol=SLACK, atol=SLACK * float(result.abs().max())):
                return axis
    return None


def _channels(layer: Any) -> int:
    return int(layer.num_channels if isinstance(layer, nn.GroupNorm) else layer.num_features)


def _spread_out(layer: Any, tensor: Tensor | None, absent: float, like: Tensor) -> Tensor:
    """The weight or bias of a layer in the shape of its output. absent: its value where the layer has none."""
    if tensor is None:
        return torch.full_like(like, absent)
    if not isinstance(layer, nn.LayerNorm):
        tensor = tensor.view(1, -1, *[1] * (like.dim() - 2))
    return tensor.detach().to(like.dtype).expand_as(like)


def _rows(layer: Any, tensor: Tensor) -> Tensor:
    """The values that share a mean and a variance as rows. tensor: in the shape of the layer's input."""
    if isinstance(layer, BATCH_NORMS):
        return tensor.transpose(0, 1).reshape(tensor.shape[1], -1)
    if isinstance(layer, nn.GroupNorm):
        return tensor.reshape(tensor.shape[0] * layer.num_groups, -1)
    if isinstance(layer, nn.LayerNorm):
        return tensor.reshape(-1, math.prod(layer.normalized_shape))
    return tensor.reshape(tensor.shape[0] * tensor.shape[1], -1)


def _from_rows(layer: Any, rows: Tensor, like: Tensor) -> Tensor:
    """Rows in the shape of the layer's input again."""
    if isinstance(layer, BATCH_NORMS):
        return rows.reshape(like.transpose(0, 1).shape).transpose(0, 1)
    return rows.reshape(like.shape)


def _scale_and_shift(y: Tensor, exact: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """s and t of y = s exact + t weight, by least squares in each row, (S, 1) each. All arguments: (S, M)."""

    def mean(tensor: Tensor) -> Tensor:
        return tensor.mean(1, keepdim=True)

    ee, ew, ww, ye, yw = map(mean, (exact * exact, exact * weight, weight * weight, y * exact, y * weight))
    return _solved(ee, ew, ww, ye, yw)


def _solved(ee: Tensor, ew: Tensor, ww: Tensor, ye: Tensor, yw: Tensor) -> tuple[Tensor, Tensor]:
    """s and t of y = s e + t w by least squares, from the means of the products."""
    determinant = ee * ww - ew * ew
    safe = determinant.clamp(min=1e-12 * (ee * ww).clamp(min=1e-300))
    return (ye * ww - yw * ew) / safe, (yw * ee - ye * ew) / safe


def _lost_by_mean(rows: Tensor, eps: float) -> Tensor:
    """The largest shift of a normalised row that the rounding of its mean may cause, (S, 1). rows: the input, (S, M)."""
    variance = rows.var(1, unbiased=False, keepdim=True) + eps
    return UNIT * (rows.shape[1] + 4) * (rows.square().mean(1, keepdim=True) / variance).sqrt()


def lossy_slopes(x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor]:
    """The least and the largest factor by which a one-pass variance in float32, over these axes, may scale a normalized input.

    The factor is the exact standard deviation divided by one whose E[x²] - E[x]² has an error of 3n + 2 unit roundoffs of E[x²].
    """
    variance = x.var(list(axes), unbiased=False, keepdim=True) + eps
    lost = UNIT * (3 * (x.numel() // variance.numel()) + 2) * x.square().mean(list(axes), keepdim=True) / variance
    return (1 + lost).rsqrt() * (1 - SLACK), torch.maximum(1 - lost, eps / variance).rsqrt() * (1 + SLACK)


# -- the gradient of the input ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gradient:
    """The gradient of a batch norm's input as A (g - E[g]) + B x̂, and the allowed errors of A, B and a constant D.

    The exact gradient is w/σ ((g - E[g]) - x̂ E[g x̂]), so A = w/σ, B = -A E[g x̂] and D = 0. The error of A is that of the standard
    deviation. The error of B is three times as large, plus the rounding of E[g x] - E[x] E[g]. The error of D is the rounding of
    the means.

    centred: g - E[g], where g is the upstream gradient.
    normalized: x̂ = (x - E[x]) / σ.
    """

    centred: Tensor
    normalized: Tensor
    a: Tensor
    b: Tensor
    allowed_a: Tensor
    allowed_b: Tensor
    allowed_d: Tensor


def gradient_has_rounded_sums(layer: Any, x: Tensor, upstream: Tensor, difference: Difference) -> bool:
    """Whether the gradient of a batch norm's input is right except for the rounding of its sums over the batch.

    x: the input of the layer, in float64.
    upstream: the gradient of its output, in float64.
    difference: of the gradient of its input.
    """
    y = as_float64(difference.captured)
    if not layer.training or y.shape != x.shape or not bool(torch.isfinite(y).all()):
        return False
    axes = [axis for axis in range(x.dim()) if axis != 1]
    exact = _gradient(layer, x, upstream, axes)
    a, b, d = _fit(y, exact, axes)
    wrong = (
        ((a - exact.a).abs() > exact.allowed_a) | ((b - exact.b).abs() > exact.allowed_b) | (d.abs() > exact.allowed_d)
    )
    if bool(wrong.any()):
        return False
    return difference.is_equal_to(a * exact.centred + b * exact.normalized + d)


def _gradient(layer: Any, x: Tensor, g: Tensor, axes: list[int]) -> _Gradient:
    """The terms of the exact gradient of a batch norm's input, by channel."""

    def mean(tensor: Tensor) -> Tensor:
        return tensor.mean(axes, keepdim=True)

    deviation = (x.var(axes, unbiased=False, keepdim=True) + layer.eps).sqrt()
    centred, normalized = g - mean(g), (x - mean(x)) / deviation
    least, most = lossy_slopes(x, axes, layer.eps)
    off = torch.maximum(most**3 - 1, 1 - least**3)
    unit = UNIT * (3 * (x.numel() // x.shape[1]) + 2)
    weight = 1.0 if layer.weight is None else layer.weight.detach().view(1, -1, *[1] * (x.dim() - 2))
    a = weight / deviation
    b = -a * mean(g * normalized)
    allowed_b = off * b.abs() + unit * a.abs() * mean((g * x).abs()) / deviation * most**3
    allowed_d = unit * (most * a.abs() * mean(g.abs()) + (b.abs() + allowed_b) * mean(x.abs()) / deviation)
    slack = SLACK * (a.abs() + b.abs())
    return _Gradient(centred, normalized, a, b, off * a.abs() + slack, allowed_b + slack, allowed_d)


def _fit(y: Tensor, exact: _Gradient, axes: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """A, B and D of a captured gradient, by least squares in each channel."""

    def mean(tensor: Tensor) -> Tensor:
        return tensor.mean(axes, keepdim=True)

    e, s = exact.centred, exact.normalized
    a, b = _solved(mean(e * e), mean(e * s), mean(s * s), mean(y * e), mean(y * s))
    return a, b, mean(y)
