"""How the axes of a framework's variable make those of a canonical weight: a permutation, or a pattern in words.

A permutation is a tuple: canonical = variable.transpose(axes). A pattern names the axes of the variable, an arrow, and the axes
of the canonical weight, separated by spaces:

    i o -> o i                  a transposition
    d h k -> (h k) d            axes in parentheses become one axis, the last of them running fastest
    d (h=8 k) -> h k d          an axis of the variable that holds several; all sizes but one must be known
    h w c m -> (c m) 1 h w      a new axis of size one; on the left, an axis of size one that is dropped
    i [z r n] -> [r z n] i      an axis of equal blocks, such as the gates of a recurrent layer, in another order
    i [q k v] -> [k] i          only one of the blocks
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array

# A permutation, a pattern, or None where the two layouts are the same.
Axes = tuple[int, ...] | str | None
Shape = tuple[int, ...]

_TOKEN = re.compile(r"\s*(\(|\)|\[[^\]()]*\]|[A-Za-z_]\w*(?:=\d+)?|1)")
_MOST_PROPOSED = 3


@dataclass(frozen=True)
class Axis:
    """An axis that a pattern names.

    blocks: names of the equal blocks that it consists of; () for an axis without blocks, which then has a name.
    size: its size where the pattern gives it.
    """

    name: str
    blocks: tuple[str, ...] = ()
    size: int | None = None


class Layout:
    """A permutation or a pattern, and its application to arrays. Raises WeightsError for a pattern that makes no sense."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        if axes is None:
            return
        text = axes if isinstance(axes, str) else _pattern(tuple(axes))
        left, arrow, right = text.partition("->")
        if not arrow:
            raise WeightsError(
                f'the pattern {text!r} has no "->" between the axes of the variable and the canonical ones'
            )
        self.left, wanted = _parse(left, text), _parse(right, text)
        self.known = [axis for group in self.left for axis in group]
        self.merged = [[self._find(axis, text) for axis in group] for group in wanted]
        self.order = [index for group in self.merged for index, _ in group]
        if sorted(self.order) != list(range(len(self.known))):
            raise WeightsError(f"the pattern {text!r} does not name every axis once on each side")
        self.selected = [blocks for group in self.merged for _, blocks in group]

    def _find(self, axis: Axis, text: str) -> tuple[int, tuple[int, ...]]:
        """(index of an axis of the variable, the blocks of it that are taken) for a canonical axis."""
        for index, known in enumerate(self.known):
            if axis.blocks and set(axis.blocks) <= set(known.blocks):
                return index, tuple(known.blocks.index(block) for block in axis.blocks)
            if not axis.blocks and not known.blocks and axis.name == known.name:
                return index, ()
        raise WeightsError(f"the pattern {text!r} takes {axis.name!r}, which is no axis on its left")

    def shape(self, shape: Shape) -> Shape:
        """The shape of the canonical weight. shape: of the variable."""
        if self.axes is None:
            return shape
        sizes = self._sizes(shape)
        return tuple(
            math.prod(
                sizes[index] // max(1, len(self.known[index].blocks)) * max(1, len(taken)) for index, taken in group
            )
            for group in self.merged
        )

    def to_canonical(self, array: Array) -> Array:
        """The canonical weight that a variable with these values makes."""
        if self.axes is None:
            return np.array(array, order="C")
        view = self._view(np.ascontiguousarray(array))
        taken = view[self._index(view)] if any(self.selected) else view
        return np.array(taken.reshape(self.shape(array.shape)), order="C")

    def write(self, array: Array, canonical: Array) -> None:
        """Write a canonical weight into an array with the layout of the variable. array: C-contiguous."""
        if self.axes is None:
            array[...] = canonical
            return
        view = self._view(array)
        if any(self.selected):
            index = self._index(view)
            view[index] = canonical.reshape([each.size for each in index])
        else:
            view[...] = canonical.reshape(view.shape)

    def _view(self, array: Array) -> Array:
        """A view of a variable in which every axis has its own place, in canonical order; blocks are axes of their own."""
        sizes: list[tuple[int, ...]] = []
        for axis, size in zip(self.known, self._sizes(array.shape)):
            sizes.append((len(axis.blocks), size // len(axis.blocks)) if axis.blocks else (size,))
        starts = np.cumsum([0, *map(len, sizes)])
        order = [int(starts[index]) + inner for index in self.order for inner in range(len(sizes[index]))]
        return array.reshape([size for group in sizes for size in group]).transpose(order)

    def _index(self, view: Array) -> tuple[Array, ...]:
        """The part of ``_view`` that the canonical weight takes."""
        ranges: list[Sequence[int]] = []
        for index, taken in zip(self.order, self.selected):
            if self.known[index].blocks:
                ranges.append(taken)
            ranges.append(range(view.shape[len(ranges)]))
        return np.ix_(*ranges)

    def _sizes(self, shape: Shape) -> list[int]:
        """The size of every named axis of a variable."""
        if len(shape) != len(self.left):
            raise WeightsError(
                f"the layout {self.axes!r} has {len(self.left)} axes, and the variable has shape {shape}"
            )
        sizes = []
        for group, size in zip(self.left, shape):
            unknown = [axis for axis in group if axis.size is None]
            given = math.prod(axis.size for axis in group if axis.size is not None)
            whole = size if len(unknown) == 1 else given
            if len(unknown) > 1 or whole != size or size % given:
                raise WeightsError(f"the layout {self.axes!r} does not fit a variable of shape {shape}")
            found = [size // given if axis.size is None else axis.size for axis in group]
            for axis, each in zip(group, found):
                if axis.blocks and each % len(axis.blocks):
                    raise WeightsError(f"the layout {self.axes!r}: {each} is no multiple of {len(axis.blocks)} blocks")
            sizes += found
        return sizes


def _pattern(axes: tuple[int, ...]) -> str:
    """The pattern of a permutation."""
    return " ".join(f"a{i}" for i in range(len(axes))) + " -> " + " ".join(f"a{i}" for i in axes)


def _parse(side: str, text: str) -> list[list[Axis]]:
    """The axes of one side of a pattern; each is the list of the axes that it consists of. text: the pattern, for messages."""
    groups: list[list[Axis]] = []
    inside = False
    position = 0
    while side[position:].strip():
        match = _TOKEN.match(side, position)
        if match is None or (match[1] == "(" and inside) or (match[1] == ")" and not inside):
            raise WeightsError(f"the pattern {text!r} cannot be read at {side[position:].strip()!r}")
        position, token = match.end(), match[1]
        if token in "()":
            inside = token == "("
            groups += [[]] if inside else []
            continue
        if not inside:
            groups.append([])
        if token != "1":
            groups[-1].append(_axis(token))
    if inside:
        raise WeightsError(f"the pattern {text!r} has no closing parenthesis")
    return groups


def _axis(token: str) -> Axis:
    if token.startswith("["):
        return Axis(token, tuple(token[1:-1].split()))
    name, _, size = token.partition("=")
    return Axis(name, (), int(size) if size else None)


def fitting(shape: Shape, wanted: Shape) -> list[Axes]:
    """The layouts with which a variable of one shape makes a weight of another one, the simplest first; [] when none does.

    They are permutations of its axes and, where these do not suffice, permutations with neighbours merged into one axis.
    """
    same = tuple(range(len(shape)))
    possible: list[Axes] = [None] if shape == wanted else []
    if len(shape) == len(wanted):
        possible += [axes for axes in _permutations(shape, wanted) if axes != same]
    if not possible:
        possible += _merged(shape, wanted)
    return possible[:_MOST_PROPOSED]


def _permutations(shape: Shape, wanted: Shape) -> Iterator[tuple[int, ...]]:
    for axes in permutations(range(len(shape))):
        if tuple(shape[axis] for axis in axes) == wanted:
            yield axes


def _merged(shape: Shape, wanted: Shape) -> Iterator[str]:
    """Patterns that merge axes of a variable, or that drop or add axes of size one."""
    names = [chr(ord("a") + index) for index in range(len(shape))]
    left = " ".join("1" if size == 1 else name for name, size in zip(names, shape))
    kept = [index for index, size in enumerate(shape) if size != 1]
    for axes in permutations(kept):
        right, waiting = [], list(axes)
        for size in wanted:
            group: list[int] = []
            while math.prod(shape[i] for i in group) < size and waiting:
                group.append(waiting.pop(0))
            if math.prod(shape[i] for i in group) != size:
                break
            text = " ".join(names[i] for i in group)
            right.append("1" if not group else text if len(group) == 1 else f"({text})")
        else:
            if not waiting:
                yield f"{left} -> {' '.join(right)}"
