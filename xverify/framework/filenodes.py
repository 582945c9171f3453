"""The nodes of a model file of any format, and the values that its runtime computes at them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .runner import Array

LONGEST = 60  # characters of a setting; a longer one, such as a table, is left out


@dataclass(frozen=True)
class FileNode:
    """One operation of a file.

    name: its name in the file, or that of its first output. kind: its operator, as the format calls it.
    inputs, outputs: names of values; "" for an input that is left out. settings: its attributes in words.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FileGraph:
    """The nodes of a file in the order of computation.

    inputs, outputs: names of the values that the file is given and that it returns.
    quantised: whether values are quantised.
    """

    nodes: tuple[FileNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    quantised: bool = False


@dataclass(frozen=True)
class Traced:
    """A graph with its values.

    values: name -> array; quantised values as the real numbers that they stand for. Constants are among them.
    """

    graph: FileGraph
    values: dict[str, Array]


def settings(attributes: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """The attributes of a node in words: numbers, texts, and short lists of them."""
    found = {}
    for name, value in attributes:
        text = _text(value)
        if text and len(text) <= LONGEST:
            found[name] = text
    return found


def _text(value: Any) -> str:
    if isinstance(value, (bytes, np.ndarray)):
        value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value.tolist()
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}"
    if isinstance(value, (int, np.integer, str)):
        return str(value)
    if isinstance(value, Mapping) or hasattr(value, "detach"):  # a tensor
        return ""
    if isinstance(value, Iterable):
        return "[" + ", ".join(_text(each) or "..." for each in value) + "]"
    text = str(value)
    return "" if re.search(r" at 0x|<", text) else text
