"""The arithmetic of a perturbed pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .arithmetic import float64_arithmetic
from .operations import perturbed_operations
from .rounding import Noise


@contextmanager
def perturbed_arithmetic(noise: Noise) -> Iterator[None]:
    """Compute in float64, with the rounding of every operation."""
    with perturbed_operations(noise), float64_arithmetic():  # the inner one sees an operation first
        yield
