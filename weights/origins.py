"""The arrays that an array of a file is compared with: those of the reference, and those that follow from them by folding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from .canonical import Array, Changed, dtype_of, shape_of
from .stored import BatchNorm, Fold, Stored, fold, folds


@dataclass(frozen=True)
class Origin:
    """An array of the reference, or one that follows from its arrays: what an array of a file may come from.

    of: the array it follows from. make: makes the array, because all of them together may not fit into memory.
    kind: "same", "folded", or how it is folded wrongly. uses: names of all arrays in it.
    """

    of: str
    make: Callable[[], Array]
    kind: str
    uses: frozenset[str]
    norm: BatchNorm | None = None

    @property
    def array(self) -> Array:
        """The array, made anew."""
        return self.make()


Key = tuple[int, ...]
Buckets = dict[Key, list[tuple[float, Origin]]]


def buckets(origins: Iterable[Origin]) -> Buckets:
    """The origins with their sizes (rms), by what stays the same in every order of axes."""
    found: Buckets = {}
    for each in origins:
        array = each.array
        found.setdefault(key(array.shape), []).append((rms(array), each))
    return found


def key(shape: tuple[int, ...]) -> Key:
    """The sizes of the axes longer than 1, in order of size."""
    return tuple(sorted(size for size in shape if size > 1))


def all_origins(stored: Stored) -> Iterator[Origin]:
    """The arrays themselves, and every layer with its batch norm folded in once and, where the layer is known, twice."""
    for name in stored.arrays:
        yield Origin(name, partial(stored.arrays.__getitem__, name), "same", frozenset({name}))
    yield from folded_origins(stored)
    for how in folds(stored):
        if how.norm.weight:
            yield from folded_layer(stored, how, "twice", 2)


def folded_origins(stored: Stored) -> Iterator[Origin]:
    """Every layer with its batch norm folded in."""
    for how in folds(stored):
        yield from folded_layer(stored, how)


def folded_layer(stored: Stored, how: Fold, kind: str = "folded", times: int = 1) -> Iterator[Origin]:
    """The weight and the bias of one layer with its batch norm folded in."""
    for index, of in enumerate((how.layer, how.bias or how.norm.beta or how.layer)):
        yield Origin(of, partial(_part, stored, how, times, index), kind, how.uses, how.norm)


def _part(stored: Stored, how: Fold, times: int, index: int) -> Array:
    return fold(stored, how, times)[index]


def floats(stored: Stored) -> Stored:
    """The floating-point arrays alone, and the batch norms that belong to them. Single numbers are left out."""
    arrays = Changed(
        stored.arrays,
        {
            name: name
            for name in stored.arrays
            if dtype_of(stored.arrays, name).kind == "f" and math.prod(shape_of(stored.arrays, name)) > 1
        },
    )
    norms = (norm for norm in stored.norms if set(norm.arrays) <= set(arrays))
    return replace(stored, arrays=arrays, norms=tuple(_with_layer(norm, arrays) for norm in norms))


def _with_layer(norm: BatchNorm, arrays: Mapping[str, Array]) -> BatchNorm:
    """A batch norm without its layer, where the layer does not have its channels, as in a grouped transposed convolution."""
    weight, bias, channels = arrays.get(norm.weight), arrays.get(norm.bias), arrays[norm.var].size
    fits = weight is not None and norm.axis < weight.ndim and weight.shape[norm.axis] == channels
    fits = fits and (not norm.bias or (bias is not None and bias.size == channels))
    return norm if fits else replace(norm, weight="", bias="", axis=0)


def varies(array: Array) -> bool:
    """Whether an array has more than one value."""
    return bool((array != array.flat[0]).any())


def rms(array: Array) -> float:
    """Root mean square, in float64."""
    return math.sqrt(float(np.square(array, dtype=np.float64).mean())) if array.size else 0.0


def turned(array: Array, order: tuple[int, ...] | None, shape: tuple[int, ...]) -> Array:
    """An array of the reference with its axes in the order of the file's. order: of the axes longer than 1."""
    plain = array.reshape([size for size in array.shape if size > 1])
    return (plain.transpose(order) if order else plain).reshape(shape)


def turned_back(array: Array, order: tuple[int, ...] | None, shape: tuple[int, ...]) -> Array:
    """An array of the file with its axes in the order of the reference's."""
    plain = array.astype(np.float64).reshape([size for size in array.shape if size > 1])
    return (plain.transpose(np.argsort(order)) if order else plain).reshape(shape)


def share(away: float) -> str:
    """A relative difference as a message writes it."""
    if not math.isfinite(away):
        return "infinitely far"
    return f"{100 * away:.2g}%" if away < 0.995 else f"{100 * away:.0f}%"
