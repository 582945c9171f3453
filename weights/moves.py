"""How a weight of a port is made of the reference's weights: by moving numbers, without changing one.

A line of a table ``stored`` of names.toml has the port's weight on its left, and says on its right what it is made of:

    "attn.qkv.weight" = { fuse = ["q.weight", "k.weight", "v.weight"] }

Exactly one of the following says what is taken; a name can be a table of the same form itself:

    of      one weight                      fuse    several, one after the other along ``axis``
    stack   several, along a new ``axis``   same    several that are equal, of which the port has one

The others say what is done with it, in this order: ``groups`` and ``part``, ``item``, ``rotary`` with ``heads``, ``permute`` or
``layout``. ``add`` and ``batch_norm`` change values before all this, and stand beside ``of`` (changes.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array
from .layout import Axes, Layout

TAKES = ("of", "fuse", "stack", "same")
ROTARY = ("half-to-interleaved", "interleaved-to-half")
# Key -> what it takes, in words.
KEYS = {
    "axis": "a whole number",
    "groups": "a whole number above 0",
    "part": 'a text such as "1/3", the first of three equal parts, or "0:64", the rows from 0 up to 64',
    "item": 'a whole number, or "*" for the number in the name',
    "heads": "a whole number above 0",
    "rotary": " or ".join(f'"{each}"' for each in ROTARY),
    "permute": "a list of axes such as [1, 0]",
    "layout": 'a pattern such as "(h=8 t k) i -> (t h k) i"',
    "copy": "true",
    "add": "a number",
    "batch_norm": "the name of a batch norm of the reference",
    "eps": "a number above 0",
}
CHANGES = ("add", "batch_norm", "eps")  # they change values; see changes.py


@dataclass(frozen=True)
class Move:
    """What one weight of a port is made of.

    takes: one of TAKES. parts: names of the reference's weights, or moves that make a part.
    copy: whether the reference's values are in another weight of the port, too.
    The other fields are those of KEYS.
    """

    takes: str
    parts: tuple[Move | str, ...]
    axis: int = 0
    groups: int = 1
    part: str = ""
    item: int | str | None = None
    heads: int = 1
    rotary: str = ""
    permute: tuple[int, ...] = ()
    layout: str = ""
    copy: bool = False
    add: float = 0.0
    batch_norm: str = ""
    eps: float = 1e-5

    @property
    def keeps_layer(self) -> bool:
        """Whether its layer is that of the reference with the name that it has itself."""
        return self.copy or self.takes == "same"

    def names(self) -> Iterator[str]:
        """The names of all weights of the reference that it takes."""
        for each in self.parts:
            yield from [each] if isinstance(each, str) else each.names()

    def of_weight(self, texts: Sequence[str], suffix: str, known: Collection[str]) -> Move:
        """The move for one weight, of a line with ``*`` or of a line for a whole layer.

        texts: what the ``*`` on its left stand for. suffix: what follows the layer's name in that of the weight.
        known: the names of the reference's weights, among which a further ``*`` of ``stack`` finds several.
        """
        parts: list[Move | str] = []
        for each in self.parts:
            if isinstance(each, str):
                name = filled(each, texts) + suffix
                parts += _numbered(name, known) if "*" in name and self.takes == "stack" else [name]
            else:
                parts.append(each.of_weight(texts, suffix, known))
        item = self.item
        if item == "*":
            if not texts or not texts[-1].isdigit():
                raise WeightsError('item = "*" needs a number in the place of the last * of the name')
            item = int(texts[-1])
        return replace(self, parts=tuple(parts), item=item, batch_norm=filled(self.batch_norm, texts))

    def make(self, read: Callable[[str], Array]) -> Array:
        """Make the port's weight. read: function that returns a weight of the reference. Raises WeightsError where it cannot."""
        arrays = [read(each) if isinstance(each, str) else each.make(read) for each in self.parts]
        made = self._combined(arrays)
        if self.part:
            made = self._part_of(made)
        if self.item is not None:
            made = np.take(made, _index(int(self.item), made.shape[_axis(self.axis, made.ndim)], "item"), self.axis)
        if self.rotary:
            made = self._rotated(made)
        axes: Axes = self.permute or (_spelled(self.layout, made.ndim) if self.layout else None)
        if self.permute and sorted(self.permute) != list(range(made.ndim)):
            raise WeightsError(
                f"permute = {list(self.permute)} does not name every axis of the shape {made.shape} once"
            )
        return Layout(axes).to_canonical(made)

    def _combined(self, arrays: list[Array]) -> Array:
        if self.takes == "same" or self.takes == "of":
            return arrays[0]
        shapes = [each.shape for each in arrays]
        axis = _axis(self.axis, arrays[0].ndim + (self.takes == "stack"))
        left = [shape[:axis] + shape[axis + (self.takes == "fuse") :] for shape in shapes]
        if len(set(left)) > 1 or len({len(shape) for shape in shapes}) > 1:
            raise WeightsError(
                f"the parts of {self.takes} have the shapes {_listed(shapes)}, which do not fit together"
            )
        if self.takes == "stack":
            return np.stack(arrays, axis)
        blocks = [self._split(each, axis) for each in arrays]
        return np.concatenate([part[group] for group in range(self.groups) for part in blocks], axis)

    def _split(self, array: Array, axis: int) -> list[Array]:
        if array.shape[axis] % self.groups:
            raise WeightsError(f"the size {array.shape[axis]} of axis {axis} is no multiple of {self.groups} groups")
        return np.split(array, self.groups, axis)

    def _part_of(self, array: Array) -> Array:
        """The part of every group."""
        axis = _axis(self.axis, array.ndim)
        blocks = self._split(array, axis)
        size = blocks[0].shape[axis]
        if "/" in self.part:
            number, count = map(int, self.part.split("/"))
            if not 0 < number <= count or size % count:
                raise WeightsError(f'part = "{self.part}" does not fit the size {size} of axis {axis}')
            start, stop = (number - 1) * size // count, number * size // count
        else:
            start, stop = map(int, self.part.split(":"))
            if not start < stop <= size:
                raise WeightsError(f'part = "{self.part}" is out of range: axis {axis} has the size {size}')
        return np.concatenate([np.take(block, range(start, stop), axis) for block in blocks], axis)

    def _rotated(self, array: Array) -> Array:
        """The same with the rows of every head in the other order of rotary position embeddings."""
        axis = _axis(self.axis, array.ndim)
        size = array.shape[axis]
        if size % (2 * self.heads):
            raise WeightsError(f"rotary: the size {size} of axis {axis} is no multiple of 2 x {self.heads} heads")
        inner = (2, -1) if self.rotary == ROTARY[0] else (-1, 2)
        order = np.arange(size).reshape(self.heads, *inner).transpose(0, 2, 1).reshape(-1)
        return np.take(array, order, axis)


def read(value: Any) -> Move:
    """Read what stands on the right of a line. Any: whatever a user wrote. Raises WeightsError where it makes no sense."""
    if isinstance(value, str) and value:
        return Move("of", (value,))
    if not isinstance(value, Mapping):
        raise WeightsError(f'it is made of a name, or of a table such as {{ fuse = ["q", "k"] }}; it is {value!r}')
    takes = [key for key in TAKES if key in value]
    if len(takes) != 1:
        raise WeightsError(f"it needs exactly one of {', '.join(TAKES)}; it has {' and '.join(takes) or 'none'}")
    unknown = sorted(set(value) - {*TAKES, *KEYS})
    if unknown:
        raise WeightsError(f"it has {unknown[0]!r}; it takes {', '.join([*TAKES, *KEYS])}")
    given = value[takes[0]]
    parts = given if isinstance(given, list) else [given]
    if (takes[0] == "of" and len(parts) != 1) or not parts:
        raise WeightsError(f"{takes[0]} takes {'one name' if takes[0] == 'of' else 'a list of names'}; it is {given!r}")
    for key in KEYS:
        if key in value and not _fits(key, value[key]):
            raise WeightsError(f"{key} takes {KEYS[key]}; it is {value[key]!r}")
    if ("rotary" in value) != ("heads" in value):
        raise WeightsError("rotary and heads stand together")
    if "permute" in value and "layout" in value:
        raise WeightsError("it has permute and layout; write one of them")
    if "groups" in value and takes[0] != "fuse" and "part" not in value:
        raise WeightsError("groups is used by fuse and by part, and it has neither")
    if "eps" in value and "batch_norm" not in value:
        raise WeightsError("eps is that of batch_norm, which it does not have")
    if {*CHANGES} & {*value} and (takes[0] != "of" or not isinstance(value["of"], str)):
        raise WeightsError(f"{' and '.join(each for each in CHANGES if each in value)} needs of with one name")
    settings = {key: value[key] for key in KEYS if key in value}
    if "permute" in settings:
        settings["permute"] = tuple(settings["permute"])
    if "layout" in settings:
        Layout(_spelled(settings["layout"], 2))  # it raises an error for a pattern that makes no sense
    made = tuple(each if isinstance(each, str) and each else _part(each) for each in parts)
    return Move(takes[0], made, **settings)


def _part(value: Any) -> Move:
    """A part that is a move itself. Any: whatever a user wrote."""
    move = read(value)
    if move.copy or (isinstance(value, Mapping) and {*CHANGES} & {*value}):
        raise WeightsError(f"copy, {', '.join(CHANGES)} stand in the line itself, not in one of its parts")
    return move


def _fits(key: str, value: Any) -> bool:
    """Whether a setting has a value of the right kind. Any: whatever a user wrote."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if key in ("groups", "heads"):
        return whole and value > 0
    if key == "permute":
        return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)
    if key == "item":
        return whole or value == "*"
    if key == "part":
        return isinstance(value, str) and re.fullmatch(r"\d+[/:]\d+", value) is not None
    if key in ("add", "eps"):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and np.isfinite(value) and (key == "add" or value > 0)
    if key in ("batch_norm", "layout"):
        return isinstance(value, str) and bool(value)
    return {"axis": whole, "copy": value is True, "rotary": value in ROTARY}[key]


def filled(name: str, texts: Sequence[str]) -> str:
    """A name with these texts in the place of its first ``*``."""
    left = iter(texts)
    return re.sub(r"\*", lambda _: next(left, "*"), name)


def _numbered(name: str, known: Collection[str]) -> list[str]:
    """All known names that a name with one ``*`` for a number stands for, in the order of the numbers."""
    pattern = re.compile(r"(\d+)".join(map(re.escape, name.split("*"))))
    found = {int(match[1]): other for other in known if (match := pattern.fullmatch(other))}
    if sorted(found) != list(range(len(found))) or not found:
        numbers = ", ".join(map(str, sorted(found))) or "none"
        raise WeightsError(f"{name!r} stands for weights with the numbers 0, 1, 2, …; the reference has: {numbers}")
    return [found[number] for number in sorted(found)]


def _axis(axis: int, count: int) -> int:
    """An axis from 0. count: of axes."""
    if not -count <= axis < count:
        raise WeightsError(f"axis = {axis} is out of range for {count} axes")
    return axis % count


def _index(index: int, size: int, what: str) -> int:
    if not 0 <= index < size:
        raise WeightsError(f"{what} {index} is out of range: there are {size}")
    return index


def _spelled(pattern: str, axes: int) -> str:
    """A pattern in which names take the place of ``...``, which stands for the further axes on both sides. axes: number of axes."""
    left, arrow, right = pattern.partition("->")
    if "..." not in left:
        return pattern
    count = len(re.sub(r"\([^)]*\)|\[[^\]]*\]", "x", left).split()) - 1
    more = " ".join(f"more{index}" for index in range(axes - count))
    return left.replace("...", more) + arrow + right.replace("...", more)


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes[:-1])) + f" and {shapes[-1]}"
