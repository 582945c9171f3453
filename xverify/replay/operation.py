"""The record of one operation of the reference's glue code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
    instruction: which instruction of that code computes it: the same one in every pass of a loop; -1 where it is unknown.
    number: place in the order of computation.
    in_place: whether it overwrites its first argument.
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
    instruction: int
    number: int
    in_place: bool = False
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
