"""Names of the arrays in the files that the parent process and the workers exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")


def case_key(case: int, name: str) -> str:
    """The name of a tensor that belongs to an input case."""
    return f"{case}/{name}"


def only_case(arrays: Mapping[str, Value], case: str) -> dict[str, Value]:
    """The arrays of one case, under the names of the first."""
    return {f"0{key.removeprefix(case)}": arrays[key] for key in arrays if key.startswith(f"{case}/")}


def state_key(name: str, index: int) -> str:
    """The name of an array of a parameter's optimizer state. index: its place in Optimizer.state_names."""
    return f"{name}/{index}"


def average_key(name: str) -> str:
    """The name of the moving average of a parameter, beside the arrays of its optimizer state."""
    return f"{name}/average"
