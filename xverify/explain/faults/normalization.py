"""Faults of normalization layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .changes import computing, with_attributes, with_weight
from .fault import Forward, PortFault

# The defaults of frameworks and of well-known models, the more frequent first.
EPSILONS = (1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-4, 1e-12, 1e-2, 0.0)


def epsilon(layer: Any) -> Iterator[PortFault]:
    """Another eps. No other fault of a group norm or an instance norm is searched for."""
    for eps in EPSILONS:
        if eps != layer.eps:
            yield PortFault("eps", f"behaves as eps={eps:g}; the reference has {layer.eps:g}", with_attributes(eps=eps))


# -- batch norm -------------------------------------------------------------------------------------------------------


def batch_norm(layer: Any) -> Iterator[PortFault]:
    """Another eps, and running statistics that are missing, misused or not used."""
    yield from epsilon(layer)
    if layer.running_mean is None:
        return
    yield PortFault(
        "running mean missing", "does not subtract the running mean", with_weight("running_mean", torch.zeros_like)
    )
    yield PortFault(
        "running variance missing",
        "does not divide by the running variance",
        with_weight("running_var", torch.ones_like),
    )
    yield PortFault(
        "variance for deviation", "divides by the variance, not by its square root", computing(_divided_by_variance)
    )
    yield PortFault(
        "batch statistics", "normalises by the batch's statistics, as in training", computing(_by_batch_statistics)
    )
    yield PortFault(
        "variance's Bessel correction",
        "its running variance is n/(n-1) as large, n of 8 to 64",
        with_weight("running_var", lambda variance: variance * 32 / 31),
    )


def _by_channel(tensor: Tensor, x: Tensor) -> Tensor:
    """A tensor of shape (C,) in a shape that broadcasts with x: (N, C, ...)."""
    return tensor.view((1, -1, 1, 1)[: x.dim()])


def _divided_by_variance(layer: Any, x: Tensor) -> Tensor:
    y = (x - _by_channel(layer.running_mean, x)) / (_by_channel(layer.running_var, x) + layer.eps)
    return y * _by_channel(layer.weight, x) + _by_channel(layer.bias, x) if layer.affine else y


def _by_batch_statistics(layer: Any, x: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, layer.weight, layer.bias, True, 0.0, layer.eps)


# -- layer norm -------------------------------------------------------------------------------------------------------


def layer_norm(layer: Any) -> Iterator[PortFault]:
    """Another eps, and other definitions of the variance and the mean."""
    yield from epsilon(layer)
    yield PortFault("unbiased variance", "divides by the variance over n-1 values, not n", _normalised(correction=1))
    yield PortFault("eps outside the root", "adds eps to the deviation, not to the variance", _normalised(outside=True))
    yield PortFault(
        "one-pass variance",
        "computes the variance in one pass, E[x²]-E[x]², which loses digits",
        computing(_one_pass),
        rounding=True,
    )
    yield PortFault(
        "mean missing", "divides by the root mean square and subtracts no mean (RMSNorm)", _normalised(centred=False)
    )


def normalised(
    x: Tensor,
    axes: tuple[int, ...],
    eps: float,
    correction: int = 0,
    outside: bool = False,
    centred: bool = True,
) -> Tensor:
    """x divided by its deviation over some axes.

    correction: of the number of values in the variance. outside: whether eps is added to the deviation.
    centred: whether the mean is subtracted; without it, the deviation is the root mean square.
    """
    if centred:
        variance, x = x.var(axes, correction=correction, keepdim=True), x - x.mean(axes, keepdim=True)
    else:
        variance = x.square().mean(axes, keepdim=True)
    return x / (variance.sqrt() + eps if outside else (variance + eps).sqrt())


def affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """y scaled and shifted."""
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _axes(layer: Any) -> tuple[int, ...]:
    return tuple(range(-len(layer.normalized_shape), 0))


def _normalised(**settings: Any) -> Forward:
    """A layer norm with other settings of ``normalised``."""
    return computing(
        lambda layer, x: affine(normalised(x, _axes(layer), layer.eps, **settings), layer.weight, layer.bias)
    )


def _one_pass(layer: Any, x: Tensor) -> Tensor:
    axes, single = _axes(layer), x.float()
    mean = single.mean(axes, keepdim=True)
    variance = single.square().mean(axes, keepdim=True) - mean.square()
    y = (x - mean.to(x.dtype)) / (variance.to(x.dtype) + layer.eps).sqrt()
    return affine(y, layer.weight, layer.bias)
