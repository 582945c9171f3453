"""The values of a record by their paths, for tables that have one line for each column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..results.records import Row


def at(record: object, path: str) -> Any:  # Any: the type of the last field
    """The value at a path of fields, keys and indices, such as ``error.rel_rms``; None where a part of it is None."""
    for name in path.split("."):
        if record is None:
            return None
        if isinstance(record, Mapping):
            record = record[name]
        else:
            record = record[int(name)] if isinstance(record, tuple) else getattr(record, name)
    return record


def written(path: str, write: Callable[[float | None], str]) -> Callable[[Row], str]:
    """A cell with the number of a row at a path."""
    return lambda row: write(at(row, path))
