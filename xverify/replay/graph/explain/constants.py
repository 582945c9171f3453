"""Compares the constants of a graph with the weights that they should be."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..values import BFLOAT16, is_float

ROUNDINGS = {"float16": np.dtype(np.float16), "bfloat16": BFLOAT16}
SMALL = 1e-5  # relative difference (rms) up to which a constant may come from folding layers together


def differences_by_name(constants: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """A sentence about each constant that has the name and shape of another array, and other values.

    Constants with other names are not compared, because an exporter may fold or rename them.
    """
    return [sentence for name, array in constants.items() for sentence in _compared(name, array, others)]


def found_by_value(weights: Mapping[str, Any], constants: Mapping[str, Any]) -> int:
    """How many of the weights are among the constants under any name, as they are or transposed."""
    shapes = {np.shape(array) for array in constants.values()}
    known = {_digest(array) for array in constants.values() if is_float(array)}
    found = 0
    for array in weights.values():
        variants = [array, array.T] if array.ndim == 2 else [array]
        found += any(each.shape in shapes and _digest(each) in known for each in variants)
    return found


def _digest(array: Any) -> tuple[tuple[int, ...], bytes]:
    values = np.ascontiguousarray(array, np.float32)
    return np.shape(array), hashlib.blake2b(values.data, digest_size=16).digest()


def _compared(name: str, array: Any, others: Mapping[str, Any]) -> Iterator[str]:
    other = others.get(name)
    if other is None or other.shape != array.shape or not (is_float(array) and is_float(other)) or not other.size:
        return
    mine, right = array.astype(np.float64), other.astype(np.float64)
    if np.array_equal(mine, right):
        return
    for called, dtype in ROUNDINGS.items():
        if np.array_equal(mine, other.astype(np.float32).astype(dtype).astype(np.float64)):
            yield f"{name} is rounded to {called}"
            return
    size = float(np.sqrt(np.mean(np.square(right))))
    away = float(np.sqrt(np.mean(np.square(mine - right)))) / size if size else float("inf")
    if not mine.any():
        yield f"{name} is zero"
    elif away > SMALL:
        yield f"{name} has other values, {away:.2g} of their size away"
