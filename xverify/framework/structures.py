"""Nested structures of tensors and other values, such as the arguments of a layer: tuples, lists and mappings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def map_leaves(values: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of a nested structure in which ``change`` is applied to everything that is no tuple, list or mapping."""
    if isinstance(values, Mapping):
        return {key: map_leaves(value, change) for key, value in values.items()}
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(map_leaves(value, change) for value in values))
    if isinstance(values, (tuple, list)):
        return type(values)(map_leaves(value, change) for value in values)
    return change(values)


def leaves(values: Any) -> list[Any]:
    """Everything in a nested structure that is no container, and is not None, in order."""
    found: list[Any] = []
    map_leaves(values, found.append)
    return [value for value in found if value is not None]


def unique_leaves(values: Any) -> Iterator[Any]:
    """Everything in a nested structure that is no container, in order. An object that occurs twice is given once.

    Cells of Keras, for example, return their state twice.
    """
    seen: set[int] = set()

    def walk(value: Any) -> Iterator[Any]:
        if isinstance(value, Mapping):
            value = list(value.values())
        if isinstance(value, (tuple, list)):
            for item in value:
                yield from walk(item)
        elif id(value) not in seen:
            seen.add(id(value))
            yield value

    return walk(values)
