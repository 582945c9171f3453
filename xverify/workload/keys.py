"""Names of arrays in the files that parent and worker share."""

from __future__ import annotations


def case_key(case: int, name: str) -> str:
    """The name of a tensor of an input case in an array file."""
    return f"{case}/{name}"


def state_key(name: str, index: int) -> str:
    """The key of a parameter's optimizer state."""
    return f"{name}/{index}"
