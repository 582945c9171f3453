"""Correct computation in a lower precision: weights, or weights and inputs, rounded to float16, bfloat16 or TF32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from ...float64.precision import ROUNDED
from .changes import combined, with_weight
from .fault import Forward, PortFault


def rounding(layer: nn.Module) -> Iterator[PortFault]:
    """For each lower precision, a layer with rounded weights, and one with rounded weights and inputs."""
    weighted = any(True for _ in layer.parameters(recurse=False))
    for name, to_precision in ROUNDED.items():
        if weighted:
            says = f"has its weights rounded to {name}"
            yield PortFault(f"{name} weights", says, _rounded(to_precision, inputs=False), rounding=True)
        if not isinstance(layer, nn.Embedding):  # its inputs are indices, which are not rounded
            says = f"rounds its weights and inputs to {name}"
            yield PortFault(f"{name} arithmetic", says, _rounded(to_precision, inputs=True), rounding=True)


def _rounded(to_precision: Callable[[Tensor], Tensor], inputs: bool) -> Forward:
    """Compute the layer with rounded weights. inputs: whether to round its inputs, too."""

    def change(value: Any) -> Any:
        return to_precision(value) if isinstance(value, Tensor) and value.is_floating_point() else value

    def forward(layer: nn.Module, original: Forward, *args: Any, **kwargs: Any) -> Any:
        named = dict(layer.named_parameters(recurse=False))
        # The factors of products are rounded, and a bias is added to their sums in float32.
        factors = [name for name, parameter in named.items() if parameter.dim() > 1] if inputs else []
        weights = [with_weight(name, change) for name in factors or named]
        return combined(*weights)(layer, original, *map(change, args) if inputs else args, **kwargs)

    return forward
