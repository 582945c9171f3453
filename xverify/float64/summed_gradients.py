"""Gradients that are plain sums over the batch, and how float32 rounds them: those of biases, and of the scales of norms.

A sum of n terms, one after the other, rounds n times, each time by a share of what is summed so far. These roundings are
independent where the terms differ, and add up by their squares. Where equal terms follow each other, as behind the mean over an
image, every addition rounds in the same direction, and the roundings add up as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..verdict.limits import UNIT
from .layer_kinds import BATCH_NORMS, channel_axis
from .rounding import Noise

PART = 2**20  # values that are summed at once
SHORT = 16  # sums of fewer terms round as their terms do
INSTANCE_NORMS = nn.modules.instancenorm._InstanceNorm
WITH_BIAS = (nn.modules.conv._ConvNd, nn.Linear)


def rounding_of_sums(layer: nn.Module, x: Tensor, upstream: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The names of the layer's parameters whose gradients are plain sums over the batch, and the rms rounding of their values.

    x: the input of the layer. upstream: the gradient of its output. Both are exact.
    """
    normalized = _normalized(layer, x)
    summed = {} if normalized is None else {"weight": normalized}
    if normalized is not None or isinstance(layer, WITH_BIAS):
        summed["bias"] = x.new_ones(1)
    for name, parameter in layer.named_parameters(recurse=False):
        if name in summed:
            terms = _terms(layer, upstream * summed[name])
            if terms.shape[0] == parameter.numel() and terms.shape[1] >= SHORT:
                yield name, rounding_of_rows(terms).reshape(parameter.shape)


def error_of_means(layer: nn.Module, x: Tensor, upstream: Tensor, noise: Noise) -> Tensor:
    """A perturbation of the gradient of the input of a batch norm in training, as the sums round behind its two means.

    x: the input. upstream: the gradient of the output.
    """
    shape, normalized = (1, -1, *[1] * (x.dim() - 2)), _normalized(layer, x)
    assert normalized is not None
    count, error = x.numel() // x.shape[1], torch.zeros_like(x)
    for factor in (torch.ones_like(x), normalized):
        rounding = rounding_of_rows(_terms(layer, upstream * factor))
        random = noise.perturbed(rounding, 1.0) - rounding  # uniform: its mean square is a third of the rounding's
        error += factor * (random * math.sqrt(3) / count).reshape(shape)
    deviation = (x.var([axis for axis in range(x.dim()) if axis != 1], unbiased=False) + layer.eps).sqrt()
    scale = 1 / deviation if layer.weight is None else layer.weight.detach() / deviation
    return error * scale.reshape(shape)


def rounding_of_rows(terms: Tensor, apart: bool = False) -> Tensor:
    """The rms rounding of the sum of each row in float32, (C,). terms: (C, n), in the order in which they are summed.

    apart: whether equal terms round together also where others stand between them. Vector units add every fourth or eighth term
        to one of several sums, in which such terms follow each other.
    """
    step = max(1, PART // terms.shape[1])
    return torch.cat([_rounding_of_part(part.double(), apart) for part in terms.split(step)])


def rounding_one_by_one(terms: Tensor, unit: float, losing: bool) -> Tensor:
    """The rms rounding of sums that are added up term by term in a precision of this unit roundoff, (...). terms: (..., n).

    losing: whether to count the terms that are lost, as they are less than half the spacing of the numbers near the sum so far.
        They add up, and most of a sum of one sign may be lost. The other roundings are independent.
    """
    sums = terms.cumsum(-1)
    size = sums.square().sum(-1) * (unit**2 / 3)
    if losing:
        half = torch.ldexp(torch.full_like(sums, unit), sums.frexp().exponent - 1)
        size += torch.where(terms.abs() < half, terms, 0.0).sum(-1).square()
    return size.sqrt_()


def _rounding_of_part(terms: Tensor, apart: bool) -> Tensor:
    counts = terms != 0  # a zero is added without rounding
    sums = terms.cumsum(1).abs_() * counts
    if apart:
        terms, order = terms.sort(1)
        sums = sums.gather(1, order)
    else:  # zeros may stand between equal terms, as behind ReLU
        terms = terms.gather(1, (counts * torch.arange(terms.shape[1])).cummax(1).values)
    run = nn.functional.pad((terms[:, 1:] != terms[:, :-1]).cumsum(1), (1, 0))
    together = torch.zeros_like(sums).scatter_add_(1, run, sums)
    return together.square_().sum(1).sqrt_() * (UNIT / math.sqrt(3))


def _terms(layer: nn.Module, values: Tensor) -> Tensor:
    """The terms of the sums as (C, n)."""
    if isinstance(layer, nn.LayerNorm):
        return values.reshape(-1, math.prod(layer.normalized_shape)).T
    return values.movedim(channel_axis(layer, values.dim()), 0).flatten(1)


def _normalized(layer: nn.Module, x: Tensor) -> Tensor | None:
    """What a norm multiplies by its scale; None where the layer is no norm."""
    function = nn.functional
    if isinstance(layer, BATCH_NORMS):
        given = (None, None) if layer.training else (layer.running_mean, layer.running_var)
        return function.batch_norm(x, *given, training=given[0] is None, eps=layer.eps)
    if isinstance(layer, INSTANCE_NORMS):
        return function.instance_norm(x, eps=layer.eps)
    if isinstance(layer, nn.GroupNorm):
        return function.group_norm(x, layer.num_groups, eps=layer.eps)
    return function.layer_norm(x, layer.normalized_shape, eps=layer.eps) if isinstance(layer, nn.LayerNorm) else None
