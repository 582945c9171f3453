"""The layouts of Flax's variables: axes in another order, axes that torch merges into one, and tensors that torch concatenates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .canonical import Array

# For each axis of the canonical tensor, the axis of the variable that it is, or the axes that are merged into it; None: the layouts
# are the same.
Axes = tuple[int | tuple[int, ...], ...] | None


class Part(NamedTuple):
    """A variable that is a canonical tensor, or one of those that are concatenated to it.

    path: its attributes, from the model on. axes: see Axes.
    flipped: whether the canonical tensor has its third axis, and those after it, in reverse.
    """

    path: str
    variable: Any
    axes: Axes = None
    flipped: bool = False


class NamedWeight(NamedTuple):
    """A canonical tensor of a model. name: its canonical name. parts: concatenated along the first canonical axis."""

    name: str
    parts: tuple[Part, ...]


class Node(NamedTuple):
    """A module or a variable of a model.

    path: its attributes, from the model on. name: the same as torch would name it. value: the module or variable; in MLX, whose
    arrays do not change, the place of an array. owner: the module that contains it.
    """

    path: str
    name: str
    value: Any
    owner: Any


def joined(*parts: str) -> str:
    """A path or a name of these parts, without those that are empty."""
    return ".".join(part for part in parts if part)


def join(weight: NamedWeight, arrays: Sequence[Array]) -> Array:
    """The canonical tensor of the arrays of its variables, or of arrays of the same shapes."""
    pieces = [to_canonical(array, part.axes, part.flipped) for array, part in zip(arrays, weight.parts)]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def split(weight: NamedWeight, array: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """The arrays of the variables of a canonical tensor. shapes: of the variables."""
    pieces = [array]
    if len(shapes) > 1:
        lengths = [canonical_shape(part.axes, shape)[0] for part, shape in zip(weight.parts, shapes)]
        pieces = np.split(array, np.cumsum(lengths)[:-1])
    each = zip(pieces, weight.parts, shapes)
    return [from_canonical(piece, part.axes, part.flipped, shape) for piece, part, shape in each]


def to_canonical(array: Array, axes: Axes, flipped: bool) -> Array:
    """The array of a variable in canonical layout. axes, flipped: see Part."""
    if axes is not None:
        array = array.transpose(_order(axes)).reshape(canonical_shape(axes, array.shape))
    return np.array(_flip(array) if flipped else array, order="C")


def from_canonical(array: Array, axes: Axes, flipped: bool, shape: tuple[int, ...]) -> Array:
    """The canonical array in the layout of the variable. axes, flipped: see Part. shape: of the variable."""
    array = _flip(array) if flipped else array
    if axes is not None:
        order = _order(axes)
        array = array.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
    return np.array(array, order="C")


def canonical_shape(axes: Axes, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in canonical layout of a variable of this shape. axes: see Axes."""
    if axes is None:
        return tuple(shape)
    return tuple(math.prod(shape[axis] for axis in group) for group in _groups(axes))


def _groups(axes: tuple[int | tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    return [axis if isinstance(axis, tuple) else (axis,) for axis in axes]


def _order(axes: tuple[int | tuple[int, ...], ...]) -> list[int]:
    return [axis for group in _groups(axes) for axis in group]


def _flip(array: Array) -> Array:
    return np.flip(array, tuple(range(2, array.ndim)))
