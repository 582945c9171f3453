"""Correct computation in a lower precision: weights, or weights and inputs, rounded to float16, bfloat16 or TF32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .changes import combined, with_weight
from .fault import Forward, PortFault


def _to_tf32(tensor: Tensor) -> Tensor:
    """Round to TF32, which keeps ten bits of the fraction of float32."""
    bits = tensor.float().view(torch.int32)
    return (((bits + 0x1000) // 0x2000) * 0x2000).view(torch.float32).to(tensor.dtype)


def _to(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda tensor: tensor.to(dtype).to(tensor.dtype)


PRECISIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "float16": _to(torch.float16),
    "bfloat16": _to(torch.bfloat16),
    "TF32": _to_tf32,
}


def rounding(layer: nn.Module) -> Iterator[PortFault]:
    """For each lower precision, a layer with rounded weights, and one with rounded weights and inputs."""
    weighted = any(True for _ in layer.parameters(recurse=False))
    for name, to_precision in PRECISIONS.items():
        if weighted:
            yield PortFault(
                f"{name} weights",
                f"has its weights rounded to {name}",
                _rounded(to_precision, inputs=False),
                rounding=True,
            )
        if not isinstance(layer, nn.Embedding):  # its inputs are indices, which are not rounded
            yield PortFault(
                f"{name} arithmetic",
                f"rounds its weights and inputs to {name}",
                _rounded(to_precision, inputs=True),
                rounding=True,
            )


def _rounded(to_precision: Callable[[Tensor], Tensor], inputs: bool) -> Forward:
    """Compute the layer with rounded weights. inputs: whether to round its inputs, too."""

    def change(tensor: Tensor) -> Tensor:
        return to_precision(tensor) if tensor.is_floating_point() else tensor

    def forward(layer: nn.Module, original: Forward, *args: Any, **kwargs: Any) -> Any:
        names = [name for name, _ in layer.named_parameters(recurse=False)]
        if inputs:
            args = tuple(change(arg) if isinstance(arg, Tensor) else arg for arg in args)
        if not names:
            return original(*args, **kwargs)
        return combined(*(with_weight(name, change) for name in names))(layer, original, *args, **kwargs)

    return forward
