"""Models of torch as graphs need them: with a tuple of tensors in place of nested outputs."""

# The framework's classes have no types, and a class here is derived from one of them.
# mypy: allow-subclassing-any

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from xverify.float64.replaced import replaced
from xverify.framework.structures import is_plain, leaves, map_leaves, named_outputs


class _Flat(torch.nn.Module):
    """A module that returns the tensors of another one's outputs as a tuple."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Any) -> Any:
        return tuple(leaves(self.model(*inputs)))


def traced(model: Any, example: tuple[Any, ...]) -> Callable[..., Any]:
    """The TorchScript trace of a module. It returns what the module returns, also where a trace cannot hold it.

    example: inputs of the trace.
    """
    outputs = model(*example)
    if is_plain(outputs):
        call: Callable[..., Any] = torch.jit.trace(model, example)
        return call
    flat = torch.jit.trace(_Flat(model), example)

    def rebuilt(*inputs: Any) -> Any:
        tensors = iter(flat(*inputs))
        return map_leaves(outputs, lambda value: None if value is None else next(tensors))

    return rebuilt


@contextmanager
def in_order(model: Any, inputs: tuple[Any, ...], names: Sequence[str]) -> Iterator[None]:
    """A context in which a module returns its outputs as a tuple in the order of their names, where a graph could not hold them.

    The module itself is changed, because a module around it would change the names of weights and scopes in a graph.
    inputs: an example.
    """
    with torch.no_grad():
        plain = is_plain(model(*inputs))
    if plain:
        yield
        return
    original = model.forward

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return tuple(named_outputs(original(*args, **kwargs), names).values())

    with replaced(model, forward=forward):
        yield
