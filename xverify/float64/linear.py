"""Counts products with the weights of a linear layer as calls of that layer.

nn.MultiheadAttention and torchvision's Swin hold nn.Linear layers that they never call: they give the weights to functions. Within
the context here, such a function calls the layer, so that it is captured and judged like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Owners = dict[int, nn.Linear]  # id of a weight -> the layer that has it
LINEAR: Callable[..., Tensor] = F.linear
ATTENTION: Callable[..., Any] = F.multi_head_attention_forward
# The place of out_proj_weight among the arguments of F.multi_head_attention_forward, as nn.MultiheadAttention calls it.
PLACE = 11


@contextmanager
def called_by_weights(owners: Owners, split: bool = True) -> Iterator[None]:
    """A context in which a product with the weight and bias of an nn.Linear of a model is a call of that layer.

    Attention takes no fast path within it, because that one computes in a single operation. Contexts may be nested. Code that is
    compiled to TorchScript within one cannot call F.linear.

    owners: of the model.
    split: whether attention is split in front of its last layer, which changes a graph that is exported within the context.
    """
    if not _active:
        _fast.append(torch.backends.mha.get_fastpath_enabled())
    _active.append(owners)
    F.linear = _linear
    if split:
        F.multi_head_attention_forward = _attention
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        _active.pop()
        if not _active:
            F.linear, F.multi_head_attention_forward = LINEAR, ATTENTION
            torch.backends.mha.set_fastpath_enabled(_fast.pop())


_active: list[Owners] = []
_fast: list[bool] = []  # whether attention may take its fast path after the last context


def owners_of(model: nn.Module) -> Owners:
    """The layers of a model by their weights, without weights that several layers share."""
    found: dict[int, list[nn.Linear]] = {}
    for module in model.modules():
        if (
            isinstance(module, nn.Linear) and module._parameters.get("weight") is not None
        ):  # a computed weight has no identity
            found.setdefault(id(module.weight), []).append(module)
    return {key: layers[0] for key, layers in found.items() if len(layers) == 1}


def _owner(weight: Any, bias: Any) -> nn.Linear | None:
    """The layer that has this weight and this bias."""
    for owners in _active:
        layer = owners.get(id(weight))
        if layer is not None and bias is layer.bias:
            return layer
    return None


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # the names of torch's arguments
    layer = _owner(weight, bias)
    if layer is None or sys._getframe(1).f_locals.get("self") is layer:  # the layer's own code computes
        return LINEAR(input, weight, bias)
    output: Tensor = layer(input)
    return output


def _attention(*args: Any, **kwargs: Any) -> Any:
    """F.multi_head_attention_forward with a call of the layer that has its output weights.

    The function gets a unit matrix instead, by which a product is exact, because a pass that pauses at every layer must not pause
    within it: a TorchFunctionMode sees it as one function. The layer gets items first, as ports of attention mostly have them.
    """
    layer = _owner(args[PLACE], args[PLACE + 1]) if len(args) > PLACE + 1 else None
    if layer is None:
        return ATTENTION(*args, **kwargs)
    unit = torch.eye(layer.in_features, dtype=layer.weight.dtype, device=layer.weight.device)
    output, weights = ATTENTION(*args[:PLACE], unit, None, *args[PLACE + 2 :], **kwargs)
    items_second = output.dim() == 3
    output = layer(output.transpose(0, 1) if items_second else output)
    return (output.transpose(0, 1) if items_second else output), weights
