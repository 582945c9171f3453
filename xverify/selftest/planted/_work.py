"""Code that the planted adapters share: work that takes a known time. All of them are derived from the numpy adapter."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from xverify.framework.adapter import Framework, Mode
from xverify.frameworks.numpy.adapter import Adapter as Numpy

__all__ = ["Numpy", "paced", "sleeping", "spinning", "working"]

# About 4 ms of digests. Digests compute in registers. The time of elementwise work on large arrays would differ by 15% from
# process to process, depending on where the arrays lie in memory.
PIECE, REPEATS = bytes(2**16), 100
# Calls of a known duration wait until this time by the clock has passed. A fixed factor of the work's own time would not be exact:
# work after a pause is 0.8% slower (measured).
PACE, SLOWER = 6e-3, 1.05  # seconds per call, and the factor of the slower adapters
WAKE = 150e-6  # seconds by which a sleep may end too late


def working(pace: Callable[[float], None] | None = None) -> Mode:
    """A mode whose calls do about 4 ms of work. pace: called afterwards with the time at which the call began."""

    def mode(framework: Framework, model: Any, example: tuple[Any, ...]) -> Callable[..., Any]:
        def call(*inputs: Any) -> Any:
            start = time.perf_counter()
            for _ in range(REPEATS):
                hashlib.sha256(PIECE).digest()
            outputs = model(*inputs)
            if pace is not None:
                pace(start)
            return outputs

        return call

    return mode


def spin(start: float, seconds: float) -> None:
    """Use the core until this number of seconds after the start."""
    while time.perf_counter() < start + seconds:
        pass


def paced(start: float) -> None:
    """Use the core until PACE seconds after the start."""
    spin(start, PACE)


def spinning(start: float) -> None:
    """Use the core for 5% longer than ``paced``."""
    spin(start, PACE * SLOWER)


def sleeping(start: float) -> None:
    """Take 5% longer than ``paced``, asleep for most of the difference. The end is a busy loop, because a sleep ends late."""
    spin(start, PACE)
    time.sleep(max(0.0, start + PACE * SLOWER - WAKE - time.perf_counter()))
    spin(start, PACE * SLOWER)
