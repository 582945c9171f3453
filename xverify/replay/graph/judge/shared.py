"""Constants of narrow types that two graphs have in common: what both store as the same numbers is not rounded differently."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..model import Graph
from ..values import UNITS, is_float

Shared = dict[int, Any]  # id of a constant of a graph -> the constant of the reference


def shared_constants(graph: Graph, reference: Graph) -> Shared:
    """The constants of whole numbers of one byte, and of narrow floating-point types, that the reference has.

    It has one under the same name, in the same type and shape and perhaps with other numbers, or the same numbers under any name.
    """
    same = {_digest(array): array for _, array in _narrow(reference)}
    found = {}
    for name, array in _narrow(graph):
        other = reference.constants.get(name)
        if other is None or other.dtype != array.dtype or other.shape != array.shape:
            other = same.get(_digest(array))
        if other is not None:
            found[id(array)] = other
    return found


def _narrow(graph: Graph) -> Iterator[tuple[str, Any]]:
    for name, array in graph.constants.items():
        narrow = UNITS[array.dtype] > UNITS[np.dtype(np.float32)] if is_float(array) else array.dtype.itemsize == 1
        if narrow and array.size > 1:
            yield name, array


def _digest(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    stored = np.ascontiguousarray(array).view(np.uint8).data if array.size else b""
    return str(array.dtype), array.shape, hashlib.blake2b(stored, digest_size=16).digest()
