"""The tensors in nested structures, such as the arguments of a layer, and their precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ..framework.structures import map_leaves, named_outputs


def map_tensors(values: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A copy of a nested structure in which ``change`` is applied to every tensor."""
    return map_leaves(values, lambda value: change(value) if isinstance(value, Tensor) else value)


def flatten(values: Any) -> list[Tensor]:
    """The tensors of a structure, in order."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(values, keep)
    return found


def named_tensors(values: Any, names: Sequence[str]) -> list[Tensor]:
    """The tensors of a model's outputs, in the order of their names (see ``framework.structures.named_outputs``)."""
    return [value for value in named_outputs(values, names).values() if isinstance(value, Tensor)]


def unflatten(values: Any, tensors: Sequence[Tensor]) -> Any:
    """A copy of a nested structure in which its tensors are replaced by these, in order."""
    remaining = iter(tensors)
    return map_tensors(values, lambda _: next(remaining))


def substitute(tensors: Iterable[Tensor], others: Mapping[int, Tensor]) -> list[Tensor]:
    """The tensors, with others at some places."""
    return [others.get(index, tensor) for index, tensor in enumerate(tensors)]


def as_float64(tensor: Tensor) -> Tensor:
    """The tensor in float64; tensors of whole numbers stay as they are."""
    return tensor.double() if tensor.is_floating_point() else tensor


def as_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32; tensors of whole numbers stay as they are."""
    return tensor.float() if tensor.is_floating_point() else tensor
