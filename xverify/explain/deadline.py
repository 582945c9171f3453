"""Ends a search for causes in time, also within one computation that does not end: a trial may diverge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.overrides import TorchFunctionMode


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
    def limited(self) -> Iterator[None]:
        """Raise OutOfTime within the context at the first operation of torch after the time is over, and at its beginning."""
        begun = self.clock()
        try:
            if self.left <= 0:
                raise OutOfTime
            with _Limit(begun + self.left, self.clock):
                yield
        finally:
            self.left -= self.clock() - begun


class _Limit(TorchFunctionMode):
    """Raises OutOfTime at every operation after a time. until: that time, of the clock."""

    def __init__(self, until: float, clock: Callable[[], float]) -> None:
        super().__init__()
        self.until, self.clock = until, clock

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self.clock() > self.until:
            raise OutOfTime
        return func(*args, **(kwargs or {}))
