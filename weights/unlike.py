"""Finds weights of a file that have other values than the reference's in places that perhaps no input uses."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from .canonical import Array

# Difference, as a share of the array's size (rms), up to which a value is the same: tables that are computed, such as those of
# sines, differ by as much, and values of lower precisions by two units of roundoff.
SAME = 1e-4
ROUNDINGS = 2.02
# Where more of the values that are not zero differ, the weights may be scaled, folded or other ones, and the outputs decide.
MOST = 0.5
SHOWN = 3  # places that a sentence names


def unlike(file: Mapping[str, Array], reference: Mapping[str, Array], whole: Collection[str] = ()) -> list[str]:
    """A sentence about each array of a file that is the reference's but for some values.

    Arrays that the reference has are left out. Others are compared by name and shape, or where each side has one of this shape.
    whole: names of arrays of which all values may differ, because their place in both files is the same.
    """
    mine, theirs = (_by_digest(arrays) for arrays in (file, reference))
    left, right = (
        {name: arrays[name] for key, name in own.items() if key not in other}
        for arrays, own, other in ((file, mine, theirs), (reference, theirs, mine))
    )
    return [says for name in left for says in _compared(name, left, right, reference, name in whole)]


def _by_digest(arrays: Mapping[str, Array]) -> dict[Any, str]:
    """Shape, kind and content of an array -> its name. What is no number is left out."""
    found: dict[Any, str] = {}
    for name in arrays:
        array = np.asarray(arrays[name])
        if array.dtype.kind in "iuf" and array.size:
            real = array.dtype.kind == "f"
            values = np.ascontiguousarray(array, np.float32 if real else np.int64)
            found[array.shape, real, hashlib.blake2b(values.data, digest_size=16).digest()] = name
    return found


def _compared(
    name: str, left: Mapping[str, Array], right: Mapping[str, Array], reference: Mapping[str, Array], whole: bool
) -> Iterator[str]:
    array = left[name]
    alike = [other for other in right if _comparable(array, right[other])]
    only = len(alike) == 1 and sum(_comparable(each, right[alike[0]]) for each in left.values()) == 1
    named = name in reference and _comparable(array, reference[name])
    other = name if named else alike[0] if only else ""
    if not other:
        return
    mine, its = array.astype(np.float64), reference[other].astype(np.float64)
    wrong = _wrong(mine, its, max(_unit(array), _unit(reference[other])))
    used = (mine != 0) | (its != 0)
    if not wrong.any() or (not whole and wrong.sum() > MOST * used.sum()):
        return
    rows: Array = np.flatnonzero(wrong.reshape(len(wrong), -1).any(1)) if array.ndim > 1 else np.zeros(0, int)
    few = ", ".join(map(str, rows[:SHOWN])) + ", …" * (len(rows) > SHOWN)
    where = f" in {len(rows):,} of {len(array):,} rows ({few})" if array.ndim > 1 else ""
    place = tuple(map(int, np.unravel_index(int(np.argmax(wrong)), np.shape(wrong))))
    also = f", the reference's {other}," if other != name else ""
    yield (
        f"{name}{also} has other values{where}: "
        f"{name}{list(place) or ''} is {mine[place]:.6g}, and the reference has {its[place]:.6g}"
    )


def _comparable(array: Array, other: Array) -> bool:
    same = array.shape == other.shape and other.dtype.kind in "iuf"
    return same and (array.dtype.kind == "f") == (other.dtype.kind == "f")


def _unit(array: Array) -> float:
    """Twice the unit roundoff of the type of an array; 0 for whole numbers."""
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0


def _wrong(mine: Array, its: Array, unit: float) -> Array:
    """Where the values are others. Numbers of masks are beyond the range of some types, and are not compared there."""
    finite = (
        np.isfinite(mine) & np.isfinite(its) & (np.abs(its) < 6e4) & (np.abs(mine) < 6e4) if unit else np.bool_(True)
    )
    size = float(np.sqrt(np.mean(np.square(its, where=finite, out=np.zeros_like(its))))) if unit else 0.0
    with np.errstate(invalid="ignore"):
        wrong: Array = (np.abs(mine - its) > np.maximum(SAME * size, ROUNDINGS * unit * np.abs(its))) & finite
    return wrong
