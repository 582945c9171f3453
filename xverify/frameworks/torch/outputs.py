"""Models of torch as graphs need them: with a tuple of tensors in place of nested outputs."""

# The framework's classes have no types, and a class here is derived from one of them.
# mypy: allow-subclassing-any

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

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
    """A context in which a module takes these inputs alone, and returns its outputs in the order of their names.

    torch's exporters make tensors of the defaults of arguments that are not given, such as is_causal=False. A graph holds no nested
    outputs, which are a tuple here. The module itself is changed, because a module around it would change the names of weights and
    scopes in a graph.
    inputs: an example.
    """
    with torch.no_grad():
        plain = is_plain(model(*inputs))
    original, had = model.forward, vars(model).get("forward")
    signature = inspect.signature(original)
    given = list(signature.parameters.values())[: len(inputs)]
    if plain and len(given) == len(signature.parameters):
        yield
        return

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        outputs = original(*args, **kwargs)
        return outputs if plain else tuple(named_outputs(outputs, names).values())

    forward.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
    object.__setattr__(model, "forward", forward)
    try:
        yield
    finally:
        object.__delattr__(model, "forward")
        if had is not None:
            object.__setattr__(model, "forward", had)
