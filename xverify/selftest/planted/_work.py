"""Adapters of numpy's with one thing planted each. Tests and the selftest put this folder into XVERIFY_FRAMEWORKS."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from xverify.framework.discovery import load

# About 4 ms. Digests compute in registers: elementwise work on large arrays takes 15% more or less from process to process, by
# where the arrays happen to lie.
PIECE, REPEATS = bytes(2**16), 100
# A call that is to take a known time is filled up to it, by the clock. A share of the work's own time would not do: work that
# begins after a pause is slower by itself (by 0.8%, measured), and nobody would know the truth to a tenth of a per cent.
PACE, SLOWER = 6e-3, 1.05
WAKE = 150e-6  # how much too late a sleep may end
Numpy: Any = load("numpy")


def working(pace: Callable[[float], None] | None = None) -> Any:
    """A mode whose calls do some 4 ms of work, then what ``pace`` does with the moment at which they began."""

    def mode(framework: Any, model: Any, example: tuple[Any, ...]) -> Any:
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
    """Use the core until so many seconds after the start."""
    while time.perf_counter() < start + seconds:
        pass


def paced(start: float) -> None:
    spin(start, PACE)


def spinning(start: float) -> None:
    spin(start, PACE * SLOWER)


def sleeping(start: float) -> None:
    """Spin as long as ``paced`` does, leave the core for most of the rest, and spin what is left: a sleep ends late."""
    spin(start, PACE)
    time.sleep(max(0.0, start + PACE * SLOWER - WAKE - time.perf_counter()))
    spin(start, PACE * SLOWER)
