"""Nested structures of tensors and other values, such as the arguments of a layer: tuples, lists and mappings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor


def map_tensors(values: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same structure with every tensor changed."""
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(map_tensors(value, change) for value in values))
    if isinstance(values, (tuple, list)):
        return type(values)(map_tensors(value, change) for value in values)
    if isinstance(values, Mapping):
        return {key: map_tensors(value, change) for key, value in values.items()}
    return values


def flatten(values: Any) -> list[Tensor]:
    """The tensors of a structure, in order."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(values, keep)
    return found


def unflatten(values: Any, tensors: Sequence[Tensor]) -> Any:
    """The same structure with these tensors in the places of its own."""
    remaining = iter(tensors)
    return map_tensors(values, lambda _: next(remaining))


def as_float64(tensor: Tensor) -> Tensor:
    """The tensor in float64; tensors of whole numbers stay as they are."""
    return tensor.double() if tensor.is_floating_point() else tensor


def as_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32; tensors of whole numbers stay as they are."""
    return tensor.float() if tensor.is_floating_point() else tensor
