"""One way in which a port may compute an operation of the reference's glue code otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....replay.operation import Compute, Keywords, Operation


@dataclass(frozen=True)
class Change:
    """One way in which a port may compute an operation otherwise.

    kind: name of the fault.
    says: one clause that completes "the port ...".
    compute: takes the arguments of the operation and returns its results.
    group: the clause without what differs from operation to operation, such as a size or a position. Changes with the same one
        may be made in several operations together. "": ``says``.
    """

    kind: str
    says: str
    compute: Compute
    group: str = ""


@dataclass(frozen=True)
class Rewrite:
    """One way in which a port may compute several operations otherwise. computes: of each operation that changes."""

    kind: str
    says: str
    computes: Mapping[Operation, Compute]


Family = Callable[[Operation], Iterator[Change]]


def others(
    kind: str, says: str, values: Iterable[Any], right: Any, compute: Callable[[Any], Compute]
) -> Iterator[Change]:
    """The change to each of these values but the right one. says: with a place for the value. compute: makes what computes it."""
    for value in dict.fromkeys(values):
        if value != right:
            yield Change(kind, says.format(value), compute(value))


def with_argument(operation: Operation, position: int, name: str, value: Any) -> Compute:
    """The operation with another argument. value: the argument, or a function of the one that is given."""

    def compute(args: tuple[Any, ...], kwargs: Keywords) -> Any:
        named = name in kwargs or position >= len(args)
        original = kwargs.get(name) if named else args[position]
        changed = value(original) if callable(value) else value
        if named:
            return operation.function(*args, **{**kwargs, name: changed})
        return operation.function(*args[:position], changed, *args[position + 1 :], **kwargs)

    return compute


def with_arguments(operation: Operation, change: Callable[[Any], Any]) -> Compute:
    """The operation with each argument changed by a function."""
    return lambda args, kwargs: operation.function(
        *map(change, args), **{key: change(value) for key, value in kwargs.items()}
    )


def with_keywords(operation: Operation, names: Iterable[str], **changes: Any) -> Compute:
    """The operation with several arguments changed: each to a value, or by a function. names: of its positional arguments."""

    def compute(args: tuple[Any, ...], kwargs: Keywords) -> Any:
        given = dict(zip(names, args)) | kwargs
        changed = {name: change(given[name]) if callable(change) else change for name, change in changes.items()}
        return operation.function(**{**given, **changed})

    return compute


def with_result(operation: Operation, change: Callable[..., Any]) -> Compute:
    """The operation with its result changed."""
    return lambda args, kwargs: change(operation.function(*args, **kwargs))


def with_shape(operation: Operation, compute: Compute) -> Compute:
    """A computation whose result gets the shape of the operation's."""
    return lambda args, kwargs: compute(args, kwargs).reshape(operation.shape)


def first_argument(change: Callable[..., Any] = lambda tensor: tensor) -> Compute:
    """A function of the operation's first tensor alone."""
    return lambda args, kwargs: change(next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)))


def argument(position: int, name: str, change: Callable[..., Any] = lambda value: value) -> Compute:
    """A function of one argument alone."""
    return lambda args, kwargs: change(args[position] if position < len(args) else kwargs[name])


def is_scalar(value: Any) -> bool:
    """Whether a value is a number other than a truth value, or a tensor of one number."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and value.dtype != torch.bool and not value.is_complex()
    return isinstance(value, (int, float)) and not isinstance(value, bool)
