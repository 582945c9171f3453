"""Faults of the weights of any layer: missing, doubled, shifted, or exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .changes import combined, with_weight
from .fault import Forward, PortFault, is_custom
from .recurrent import gates


def weights(layer: nn.Module) -> Iterator[PortFault]:
    """Faults of a layer's vectors and, in a layer that the model defines, of its tables.

    A layer with gates has none of them: see ``recurrent``.
    """
    if gates(layer) is not None:
        return
    for name, weight in layer.named_parameters(recurse=False):
        if weight.dim() == 1:
            yield from _vector(name)
        elif is_custom(layer):
            yield from _table(name)
    vectors = {name for name, weight in layer.named_parameters(recurse=False) if weight.dim() == 1}
    if {"weight", "bias"} <= vectors:
        yield PortFault("scale and shift exchanged", "has weight and bias exchanged", _exchanged)


def _vector(name: str) -> Iterator[PortFault]:
    scale = name.endswith("weight")
    without = torch.ones_like if scale else torch.zeros_like
    yield PortFault(f"{name} missing", f"has no {name}", with_weight(name, without))
    if not scale:
        yield PortFault(f"{name} doubled", f"adds its {name} twice", with_weight(name, lambda b: 2 * b))


def _table(name: str) -> Iterator[PortFault]:
    yield PortFault("table shifted", f"its {name} is rolled by one row", with_weight(name, lambda w: w.roll(1, 0)))
    yield PortFault("table shifted", f"its {name} is moved back by one row", with_weight(name, lambda w: w.roll(-1, 0)))
    yield PortFault(f"{name} missing", f"does not use its {name}", with_weight(name, torch.zeros_like))


def _exchanged(layer: Any, original: Forward, *args: Any, **kwargs: Any) -> Any:
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    change = combined(with_weight("weight", lambda _: bias), with_weight("bias", lambda _: weight))
    return change(layer, original, *args, **kwargs)
