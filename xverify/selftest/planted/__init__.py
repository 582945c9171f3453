"""Adapters of numpy's with one thing planted each. Tests and the selftest put this folder into XVERIFY_FRAMEWORKS."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from xverify.frameworks import load

# A call takes about 2 ms. Digests compute in registers: elementwise work on large arrays takes 15% more or less from process to
# process, by where the arrays happen to lie.
PIECE, REPEATS = bytes(2**16), 50
SHARE = 0.05  # of its own time that a slower adapter's call takes longer
Numpy: Any = load("numpy")


def working(after: Callable[[float], None]) -> Any:
    """A mode whose calls do some 2 ms of work, then what ``after`` does with the seconds that the work took."""

    def mode(framework: Any, model: Any, example: tuple[Any, ...]) -> Any:
        def call(*inputs: Any) -> Any:
            start = time.perf_counter()
            for _ in range(REPEATS):
                hashlib.sha256(PIECE).digest()
            outputs = model(*inputs)
            after(time.perf_counter() - start)
            return outputs

        return call

    return mode


def nothing(seconds: float) -> None:
    pass


def spin(seconds: float) -> None:
    """Use the core for a share of these seconds."""
    end = time.perf_counter() + SHARE * seconds
    while time.perf_counter() < end:
        pass


def sleep(seconds: float) -> None:
    """Leave the core for most of a share of these seconds: a sleep ends late, so the rest is spun."""
    end = time.perf_counter() + SHARE * seconds
    time.sleep(max(0.0, SHARE * seconds - 80e-6))
    while time.perf_counter() < end:
        pass
