"""Changes of a layer during one call, from which the faults are made. Each function returns the ``forward`` of a PortFault."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from ...float64.replaced import replaced
from .fault import Forward


def with_attributes(**values: Any) -> Forward:
    """Compute the layer with other attributes."""

    def forward(layer: nn.Module, original: Forward, *args: Any, **kwargs: Any) -> Any:
        with replaced(layer, **values):
            return original(*args, **kwargs)

    return forward


def with_weight(name: str, change: Callable[[Tensor], Tensor]) -> Forward:
    """Compute the layer with one weight or buffer changed, and restore it afterwards."""

    def forward(layer: nn.Module, original: Forward, *args: Any, **kwargs: Any) -> Any:
        tensor = getattr(layer, name)
        saved = tensor.detach().clone()
        tensor.data.copy_(change(saved.clone()))
        try:
            return original(*args, **kwargs)
        finally:
            tensor.data.copy_(saved)

    return forward


def with_input(change: Callable[[Tensor], Tensor]) -> Forward:
    """Compute the layer on a changed first input."""
    return lambda layer, original, x, *args, **kwargs: original(change(x), *args, **kwargs)


def with_output(change: Callable[[Tensor], Tensor]) -> Forward:
    """Change the first output of the layer."""

    def forward(layer: nn.Module, original: Forward, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        return (change(result[0]), *result[1:]) if isinstance(result, tuple) else change(result)

    return forward


def with_input_and_output(compute: Callable[[Tensor, Tensor], Tensor]) -> Forward:
    """Compute another output from the input and the output of the layer."""
    return lambda layer, original, x: compute(x, original(x))


def computing(compute: Callable[..., Any]) -> Forward:
    """Call ``compute(layer, arguments)`` in place of the layer's own forward."""
    return lambda layer, original, *args, **kwargs: compute(layer, *args, **kwargs)


def combined(*forwards: Forward) -> Forward:
    """Apply several changes together; the last one is the outermost."""

    def forward(layer: nn.Module, original: Forward, *args: Any, **kwargs: Any) -> Any:
        for change in forwards:
            original = partial(change, layer, original)
        return original(*args, **kwargs)

    return forward
