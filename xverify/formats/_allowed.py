"""What a model file may use without trust: lists of names, which ``suites/operators.py`` writes."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def allowed(name: str) -> frozenset[str]:
    """The names in a list, for example "tensorflow-operators"."""
    return frozenset(Path(__file__).with_name(f"{name}.txt").read_text().split())
