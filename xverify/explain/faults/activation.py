"""Faults of activations, softmax and dropout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ...float64.activations import ACTIVATIONS
from .changes import computing
from .fault import PortFault

# The layers that compute one of these activations.
LAYERS = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh, nn.ELU, nn.Softplus,
)  # fmt: skip


def activation(layer: nn.Module) -> Iterator[PortFault]:
    """Every other activation, and the other variants of the same one."""
    reference = type(layer).__name__
    for name, function in ACTIVATIONS.items():
        if name == reference or _is_same_gelu(layer, name):
            continue
        yield PortFault(
            _kind(name, reference),
            f"computes {name}; the reference {_described(layer)}",
            computing(lambda layer, x, function=function: function(x)),
        )


def _described(layer: Any) -> str:
    name = type(layer).__name__
    return f"{name}({layer.negative_slope:g})" if isinstance(layer, nn.LeakyReLU) else name


def _is_same_gelu(layer: Any, name: str) -> bool:
    exact = type(layer).__name__ == "GELU" and layer.approximate == "none"
    return exact and name.startswith("GELU by the error")


def _kind(name: str, reference: str) -> str:
    if "slope" in name or "Leaky" in name:
        return "activation slope"
    return "GELU form" if reference == name[:4] == "GELU" else "another activation"


def softmax(layer: nn.Softmax) -> Iterator[PortFault]:
    """Another axis, no softmax at all, or its logarithm."""
    for axis in [axis for axis in (-2, 1, 0, -1) if axis != layer.dim]:
        yield PortFault(
            "softmax axis",
            f"normalises over axis {axis}; the reference over {layer.dim}",
            computing(lambda layer, x, axis=axis: x.softmax(axis)),
        )
    yield PortFault("softmax missing", "hands on its input", computing(lambda layer, x: x))
    yield PortFault(
        "log-softmax", "takes the logarithm of the softmax", computing(lambda layer, x: x.log_softmax(layer.dim))
    )


def dropout(layer: nn.Module) -> Iterator[PortFault]:
    """Values that are dropped, because the model was left in training mode."""

    def drop(layer: Any, x: Tensor) -> Tensor:
        return torch.dropout(x, layer.p, True)  # F.dropout may be off

    yield PortFault("dropout left on", "drops values at random: it is in training mode", computing(drop))
