"""The models of the suite of floors: those of the zoo and of tests/ports, run in TensorFlow beside torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scaled:
    size: float


def names():
    return []


SHARE = 5
