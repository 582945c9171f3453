"""Recognises batch norms in training that are right except for the rounding of their long sums in float32.

A sum of n terms loses at most n unit roundoffs (Higham 2002, 4.2). So a variance that is computed in one pass, which is
E[x²] - E[x]², loses up to 3n + 2 unit roundoffs of E[x²]. That may be all of the variance, so that eps alone is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..results.verdicts import Verdict
from ..verdict.findings import Explanation, Finding
from ..verdict.limits import UNIT
from .layer_kinds import channel_axis
from .structures import as_float64
from .tensors import Floors, Place, judge

SLACK = 1e-5  # relative tolerance of a fitted factor, because the captured values are in float32
ROUNDED_SUMS = Explanation(
    "rounded sums",
    "its mean and variance are sums in float32 that lose digits, as E[x²] - E[x]² in one pass does",
    rounding=True,
)


def output_has_rounded_sums(layer: Any, x: Tensor, captured: Tensor, floors: Floors, finding: Finding) -> bool:
    """Whether the output of a batch norm is the exact one except for the rounding of its sums.

    Each channel may be scaled and shifted by as much as this rounding allows.

    x: the input of the layer, in float64.
    captured: the captured output.
    finding: the finding on the output.
    """
    exact = floors.exact
    if captured.shape != exact.shape or not bool(torch.isfinite(captured).all()):
        return False
    axes = [axis for axis in range(exact.dim()) if axis != 1]
    y = captured.double()
    exact_mean = exact.mean(axes, keepdim=True)
    centred = exact - exact_mean
    spread = centred.square().mean(axes, keepdim=True)
    slope = ((y - y.mean(axes, keepdim=True)) * centred).mean(axes, keepdim=True) / spread.clamp(min=1e-300)
    shift = y.mean(axes, keepdim=True) - slope * exact_mean
    least, most = lossy_slopes(x, axes, layer.eps)
    allowed = (slope - 1).abs() * exact_mean.abs() + _lost_by_mean(layer, x, axes, slope, spread)
    if bool(((slope < least) | (slope > most) | (shift.abs() > allowed)).any()):
        return False
    return _is_equal(finding, captured, floors.of(slope * exact + shift), layer)


def _lost_by_mean(layer: Any, x: Tensor, axes: list[int], slope: Tensor, spread: Tensor) -> Tensor:
    """The largest shift of the output, by channel, that the rounding of the mean of x may cause.

    spread: the variance of the exact output.
    """
    variance = x.var(axes, unbiased=False, keepdim=True)
    with_eps, terms = variance + layer.eps, x.numel() // x.shape[1]
    weight = (spread * with_eps / variance.clamp(min=1e-300)).sqrt()
    size = (x.square().mean(axes, keepdim=True) / with_eps).sqrt()
    return slope * weight * UNIT * (terms + 4) * size


def lossy_slopes(x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor]:
    """The least and the largest factor, by channel, by which a one-pass variance in float32 may scale a normalized input.

    The factor is the exact standard deviation divided by one whose E[x²] - E[x]² has an error of 3n + 2 unit roundoffs of E[x²].
    """
    variance = x.var(list(axes), unbiased=False, keepdim=True) + eps
    lost = UNIT * (3 * (x.numel() // x.shape[1]) + 2) * x.square().mean(list(axes), keepdim=True) / variance
    return (1 + lost).rsqrt() * (1 - SLACK), torch.maximum(1 - lost, eps / variance).rsqrt() * (1 + SLACK)


def _is_equal(finding: Finding, captured: Tensor, floors: Floors, layer: Any) -> bool:
    place = Place(finding.layer, 0, 0, finding.kind, finding.what)
    axis = channel_axis(layer, floors.exact.dim())
    return judge(place, captured, floors, finding.terms, axis).verdict == Verdict.EQUAL


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


def gradient_has_rounded_sums(
    layer: Any, x: Tensor, upstream: Tensor, captured: Tensor, floors: Floors, finding: Finding
) -> bool:
    """Whether the gradient of a batch norm's input is right except for the rounding of its sums over the batch.

    x: the input of the layer, in float64.
    upstream: the gradient of its output, in float64.
    captured: the captured gradient of its input.
    finding: the finding on that gradient.
    """
    y = as_float64(captured)
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
    return _is_equal(finding, captured, floors.of(a * exact.centred + b * exact.normalized + d), layer)


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
    ee, es, ss = mean(e * e), mean(e * s), mean(s * s)
    ye, ys, d = mean(y * e), mean(y * s), mean(y)
    determinant = ee * ss - es * es
    safe = determinant.clamp(min=1e-12 * (ee * ss).clamp(min=1e-300))
    return (ye * ss - ys * es) / safe, (ys * ee - ye * es) / safe, d
