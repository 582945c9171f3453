"""Ends a search for causes in time, also within one computation that does not end: a trial may diverge."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

BACKWARDS = ("backward", "grad")  # functions of torch that run the backward pass

MOST_NESTED = 30  # backward passes within one another; a hook of an implicit layer has two or three

# What a context of torch calls at its end: torch.no_grad would otherwise last beyond the search.
RESTORING = ("_set_grad_enabled",)


class OutOfTime(BaseException):
    """The time of a search is over. It is no Exception, because the user's code, which it ends, may catch these."""


class Deadline:
    """The time that a search has left.

    seconds: of computation (processor time of this process) in all contexts of ``limited`` together.
    clock: function that returns seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.process_time) -> None:
        self.left, self.clock = seconds, clock

    @contextmanager
    def limited(self, most: float = math.inf) -> Iterator[None]:
        """Raise OutOfTime within the context at the first operation of torch after the time is over, and at its beginning.

        most: seconds that this context may take. Where it takes more, ``left`` is above zero afterwards.
        """
        begun = self.clock()
        try:
            if self.left <= 0:
                raise OutOfTime
            with _Limit(begun + min(self.left, most), self.clock), _nested_backward_passes():
                yield
        finally:
            self.left -= self.clock() - begun


@contextmanager
def _nested_backward_passes() -> Iterator[None]:
    """Raise OutOfTime within the context where a backward pass is within many others, each of which takes a thread and memory.

    A hook that computes a gradient may call itself without end once a trial has changed the code.
    """
    originals = {name: getattr(torch.autograd, name) for name in BACKWARDS}
    depth = 0

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth >= MOST_NESTED:
                raise OutOfTime
            depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                depth -= 1

        return call

    for name, original in originals.items():
        setattr(torch.autograd, name, counted(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.autograd, name, original)


class _Limit(TorchFunctionMode):
    """Raises OutOfTime at every operation after a time. until: that time, of the clock."""

    def __init__(self, until: float, clock: Callable[[], float]) -> None:
        super().__init__()
        self.until, self.clock = until, clock

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") not in RESTORING:
            self.check()
        if getattr(func, "__name__", "") in BACKWARDS:
            with _WithinBackward(self):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def check(self) -> None:
        """Raise OutOfTime when the time is over."""
        if self.clock() > self.until:
            raise OutOfTime


class _WithinBackward(TorchDispatchMode):
    """Raises OutOfTime in a backward pass: its operations, and those of its hooks, are not seen by a mode of functions."""

    def __init__(self, limit: _Limit) -> None:
        super().__init__()
        self.limit = limit

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.limit.check()
        return func(*args, **(kwargs or {}))
