"""The record of one operation of the reference's glue code, and of one way in which a port may compute it otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Keywords = dict[str, Any]  # Any: an operation may take and return any values
Compute = Callable[[tuple[Any, ...], Keywords], Any]


class Stale(ValueError):
    """The value of a tensor was overwritten after the operation used it."""


@dataclass(eq=False)
class Source:
    """A tensor that an operation was given.

    version: torch's count of the changes of the tensor when it was given.
    maker: the operation that made it; None for the output of a layer, an input of the model, a weight or a table.
    index: which result of its maker it is.
    """

    tensor: Tensor
    version: int
    maker: Operation | None = None
    index: int = 0

    def value(self) -> Tensor:
        """The value that was given. Raises Stale when it was overwritten."""
        if self.tensor._version != self.version:
            raise Stale
        return self.tensor


@dataclass(eq=False)
class Operation:
    """One operation that the reference's glue code computed.

    name: its function in torch, in one spelling: "add" for ``+``, ``torch.add`` and ``add_``.
    function: computes it and leaves its arguments as they are.
    sources: the tensors among its arguments, in order.
    shapes: of its results.
    size: bytes of its results.
    line: the line of the model's code, such as "torch.py:14"; "" where it is unknown.
    number: place in the order of computation.
    right: the results that agree with what the port computes.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Keywords
    sources: list[Source]
    shapes: list[tuple[int, ...]]
    size: int
    line: str
    number: int
    right: set[int] = field(default_factory=set)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result."""
        return self.shapes[0]

    def argument(self, position: int, *names: str, default: Any = None) -> Any:
        """The argument at this position, or with one of these names."""
        for name in names:
            if name in self.kwargs:
                return self.kwargs[name]
        return self.args[position] if position < len(self.args) else default

    def source(self, argument: Any) -> Source | None:
        """Where a tensor that is an argument comes from; None for anything else."""
        return next((source for source in self.sources if source.tensor is argument), None)

    def made_by(self, argument: Any) -> Operation | None:
        """The operation that made an argument; None for anything else."""
        source = self.source(argument)
        return source.maker if source is not None else None

    def integers(self) -> list[int]:
        """The numbers after the first argument, which may be given as one sequence: the sizes of a view, axes."""
        rest = self.args[1] if len(self.args) == 2 and isinstance(self.args[1], (tuple, list)) else self.args[1:]
        return [value for value in rest if isinstance(value, int)]


@dataclass(frozen=True)
class Change:
    """One way in which a port may compute an operation otherwise.

    kind: name of the fault.
    says: one clause that completes "the port ...".
    compute: takes the arguments of the operation and returns its results.
    """

    kind: str
    says: str
    compute: Compute


@dataclass(frozen=True)
class Rewrite:
    """One way in which a port may compute several operations otherwise. computes: of each operation that changes."""

    kind: str
    says: str
    computes: Mapping[Operation, Compute]


Family = Callable[[Operation], Iterator[Change]]


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


def with_result(operation: Operation, change: Callable[..., Any]) -> Compute:
    """The operation with its result changed."""
    return lambda args, kwargs: change(operation.function(*args, **kwargs))


def first_argument(change: Callable[..., Any] = lambda tensor: tensor) -> Compute:
    """A function of the operation's first tensor alone."""

    def compute(args: tuple[Any, ...], kwargs: Keywords) -> Any:
        given = [*args, *kwargs.values()]
        return change(next(value for value in given if isinstance(value, Tensor)))

    return compute


def is_scalar(value: Any) -> bool:
    """Whether a value is a number other than a truth value, or a tensor of one number."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and value.dtype != torch.bool and not value.is_complex()
    return isinstance(value, (int, float)) and not isinstance(value, bool)
