"""Dropout that a model of torch applies by a function, ``F.dropout(x, p, self.training)``, and not by a layer."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

FUNCTIONS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
ORIGINALS: Mapping[str, Callable[..., Tensor]] = {name: getattr(F, name) for name in FUNCTIONS}
OF_LAYERS = ("torch.nn.modules.dropout", "torch.nn.functional")  # modules whose calls come from layers

_models: dict[int, weakref.finalize[..., Any]] = {}  # those whose dropout is off, by id
_stepping: set[int] = set()  # those of them whose file makes its own training step


def _off(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """What stands for each of FUNCTIONS. torch.jit.script compiles it."""
    return input


def _off_in_modules(name: str) -> Callable[..., Tensor]:
    def run(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return input if _in_module() else ORIGINALS[name](input, p, training, inplace)

    run.__name__ = name
    return run


def _in_module() -> bool:
    """Whether code of a module runs: its forward pass, or another one of its methods."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not isinstance(frame.f_locals.get("self"), torch.nn.Module):
        frame = frame.f_back
    return frame is not None


OFF: Mapping[str, Callable[..., Tensor]] = dict.fromkeys(FUNCTIONS, _off)
OFF_IN_MODULES: Mapping[str, Callable[..., Tensor]] = {name: _off_in_modules(name) for name in FUNCTIONS}


def _put(functions: Mapping[str, Callable[..., Tensor]]) -> None:
    for name, function in functions.items():
        setattr(F, name, function)


def _restore() -> None:
    _put(OFF_IN_MODULES if _stepping else OFF if _models else ORIGINALS)


def switch_off(model: torch.nn.Module, own_step: bool = False) -> None:
    """Let FUNCTIONS return their input for as long as this model exists.

    own_step: whether they do so only where a module calls them: other code of a training step may drop values.
    """
    number = id(model)

    def forget() -> None:
        _models.pop(number, None)
        _stepping.discard(number)
        _restore()

    if number not in _models:
        _models[number] = weakref.finalize(model, forget)
    if own_step:
        _stepping.add(number)
    _restore()


@contextmanager
def switched_on() -> Iterator[None]:
    """FUNCTIONS drop values within the context, as layers do that are tried."""
    _put(ORIGINALS)
    try:
        yield
    finally:
        _restore()


@contextmanager
def watched() -> Iterator[list[str]]:
    """The names of those of FUNCTIONS that code outside of layers calls within the context, with a probability above zero."""
    called = list[str]()

    def watching(name: str) -> Callable[..., Tensor]:
        def run(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
            if p and sys._getframe(1).f_globals.get("__name__") not in OF_LAYERS:
                called.append(name)
            return ORIGINALS[name](input, p, training, inplace)

        return run

    _put({name: watching(name) for name in FUNCTIONS})
    try:
        yield called
    finally:
        _restore()
