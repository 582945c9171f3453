"""Faults that a mutation plants and no search tries, because an explanation recognises them by the pattern of the difference."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .changes import with_attributes, with_output, with_weight
from .fault import Forward, PortFault, is_custom


def planted_only(layer: nn.Module) -> Iterator[PortFault]:
    """A scaled output, another momentum, one stale weight, and a shared matrix that is not shared."""
    yield PortFault("scaled", "its result is 1.0001 times the reference's", with_output(lambda y: y * (1 + 1e-4)))
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        yield PortFault("momentum", "has momentum 0.9 for 0.1", with_attributes(momentum=0.9))
    for name, weight in layer.named_parameters(recurse=False):
        if weight.dim() > 1:
            yield PortFault("one stale weight", f"one value of its {name} is stale", with_weight(name, _stale))
    if _takes_weight(layer):
        yield PortFault("tied weights untied", "has a matrix of its own for one that is shared", _untied)


def _takes_weight(layer: nn.Module) -> bool:
    """Whether the layer is defined by the model and takes a weight of another layer as its second argument."""
    arguments = inspect.signature(layer.forward).parameters
    return is_custom(layer) and len(arguments) == 2 and not any(True for _ in layer.parameters())


def _stale(weight: Tensor) -> Tensor:
    """The weight with one value in the middle changed by the standard deviation of all values."""
    flat = weight.flatten()
    flat[flat.numel() // 2] += weight.std()
    return flat.view_as(weight)


def _untied(layer: nn.Module, original: Forward, x: Tensor, weight: Tensor) -> Any:
    wave = torch.cos(torch.arange(weight.numel(), dtype=weight.dtype)).view_as(weight)
    return original(x, weight + 0.1 * weight.std() * wave)
