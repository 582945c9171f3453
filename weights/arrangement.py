"""The weights of a port that are stored otherwise than the reference's, by the table ``stored`` of names.toml (see moves.py).

Where the port's numbers come from is found by moving the positions of the reference's numbers in their place. Positions give the
way back, too, and show a number that is taken twice or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from xverify.errors import WeightsError, nearest

from .canonical import Array, Changed
from .layout import Shape
from .moves import Move, read

Computed = dict[str, tuple[Shape, Callable[[], Array]]]  # see canonical.Changed


@dataclass(frozen=True)
class Arrangement:
    """The weights of a port that are made of the reference's.

    moves: the port's own name -> what it is made of. own_shapes: their shapes in the port.
    shapes: canonical name -> shape, of all that they are made of, without copies.
    """

    moves: Mapping[str, Move] = field(default_factory=dict)
    own_shapes: Mapping[str, Shape] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.moves)

    @property
    def moved(self) -> tuple[str, ...]:
        """The reference's weights of which no value is changed, sorted."""
        kept = (move for move in self.moves.values() if not (move.add or move.batch_norm))
        return tuple(sorted({name for move in kept for name in move.names()}))

    def to_own(self, arrays: Mapping[str, Array], others: Mapping[str, str]) -> Mapping[str, Array]:
        """The weights as the port stores them.

        arrays: canonical. Those of another kind than weights, such as gradients, may lack some.
        others: own name -> name of the array, of the port's others.
        """
        made: Computed = {
            own: (self.own_shapes[own], partial(self._made, own, arrays))
            for own, move in self.moves.items()
            if all(name in arrays for name in move.names())
        }
        return Changed(arrays, others, made)

    def to_canonical(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        """The weights of the reference, and under their own names the port's others.

        arrays: own name -> array. Those of another kind than weights, such as gradients, may lack some.
        """
        if not self:
            return arrays
        back: Computed = {
            name: (shape, partial(self._back, name, arrays))
            for name, shape in self.shapes.items()
            if all(own in arrays for own in self.homes(name))
        }
        return Changed(arrays, {name: name for name in arrays if name not in self.moves}, back)

    def homes(self, name: str) -> list[str]:
        """The port's weights that hold a weight of the reference; one that is a copy does not count."""
        return [own for own, move in self.moves.items() if not move.copy and name in move.names()]

    def positions(self, own: str, name: str) -> Array:
        """For every number of a weight of the port, its position in a weight of the reference, flat; -1 for those of others."""

        def read(other: str) -> Array:
            shape = self.shapes[other]
            if other != name:
                return np.full(shape, -1)
            return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)

        return _taking(self.moves[own], name).make(read)

    def _made(self, own: str, arrays: Mapping[str, Array]) -> Array:
        for first, *others in _equal_ones(self.moves[own]):
            for other in others:
                if not np.array_equal(arrays[first], arrays[other]):
                    raise WeightsError(
                        f"the model has {own} in place of {first} and {other}, which have different values: give weights in "
                        "which they are equal (--weights), or tie them in the reference"
                    )
        return self.moves[own].make(lambda name: np.asarray(arrays[name]))

    def _back(self, name: str, arrays: Mapping[str, Array]) -> Array:
        shape = self.shapes[name]
        found = np.zeros(int(np.prod(shape, dtype=np.int64)), np.float32)
        for own in self.homes(name):
            positions, array = self.positions(own, name), np.asarray(arrays[own])
            found = found.astype(array.dtype, copy=False)
            taken = positions >= 0
            found[positions[taken]] = array[taken]
        return found.reshape(shape)

    def check_copies(self, arrays: Mapping[str, Array], own: Mapping[str, Array]) -> None:
        """Raise WeightsError where a copy has other values than the weight. arrays: canonical. own: as the port stores them."""
        for name, move in self.moves.items():
            if move.copy and not np.array_equal(self._made(name, arrays), own[name]):
                raise WeightsError(f"{name} has other values than {', '.join(move.names())}, of which it is a copy")


def arrange(
    table: Mapping[str, Any], own: Mapping[str, Shape], expected: Mapping[str, Shape], place: str
) -> Arrangement:
    """Apply a table to a model.

    table: the port's weight or layer -> what it is made of. own: own name -> shape of the port's weights.
    expected: canonical name -> shape of the reference's weights. place: the file and the table, which begin every message.
    Raises WeightsError for a line that fits no weight, or weights that do not fit.
    """
    rules = read_table(table, place)
    lines = {name: line for name in own if (line := _line_of(name, rules, expected, place))}
    unused = sorted(set(rules) - {key for key, _ in lines.values()})
    if unused:
        raise WeightsError(
            f"{place} {unused[0]!r} is no weight and no layer with weights of the model{nearest(unused[0], own)}"
        )
    shapes = {name: expected[name] for _, move in lines.values() if not move.copy for name in move.names()}
    found = Arrangement({name: move for name, (_, move) in lines.items()}, {name: own[name] for name in lines}, shapes)
    for name, (key, move) in lines.items():
        with _placed(f"{place} {key!r}"):
            made = move.make(lambda other: np.empty(expected[other], np.int8))
        if made.shape != tuple(own[name]):
            raise WeightsError(
                f"{place} {key!r}: {_of(move)} make the shape {made.shape}; {name} of the model has {tuple(own[name])}"
            )
    for name in shapes:
        _check_whole(found, name, place)
    return found


def read_table(table: Mapping[str, Any], place: str) -> dict[str, Move]:
    """The lines of a table. place: begins every message. Raises WeightsError for a line that makes no sense."""
    rules = {}
    for key, value in table.items():
        with _placed(f"{place} {key!r}"):
            rules[key] = read(value)
    return rules


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """Put a place before the text of a WeightsError."""
    try:
        yield
    except WeightsError as error:
        raise WeightsError(f"{place}: {error}") from None


def _line_of(
    name: str, rules: Mapping[str, Move], expected: Mapping[str, Shape], place: str
) -> tuple[str, Move] | None:
    """The line for a weight, and its move; None where there is none. The longest line that matches counts."""
    matches = []
    for key in rules:
        match = re.match("([^.]*)".join(map(re.escape, key.split("*"))) + r"(?=\.|$)", name)
        if match is not None:
            matches.append((len(match[0]), key, match))
    if not matches:
        return None
    longest = max(length for length, *_ in matches)
    first, *others = [(key, match) for length, key, match in matches if length == longest]
    if others:
        raise WeightsError(f"{place} {first[0]!r} and {others[0][0]!r} both fit {name}: write one of them")
    key, match = first
    where = f"{place} {key!r}"
    with _placed(where):
        move = rules[key].of_weight(match.groups(), name[match.end() :], expected)
    for each in move.names():
        if each not in expected:
            raise WeightsError(f"{where}: {each!r}, for {name}, is no weight of the reference{nearest(each, expected)}")
    return key, move


def _check_whole(arrangement: Arrangement, name: str, place: str) -> None:
    """Raise WeightsError unless every number of a weight of the reference is in the port once."""
    homes = arrangement.homes(name)
    size = int(np.prod(arrangement.shapes[name], dtype=np.int64))
    counts = np.zeros(size, np.int64)
    for own in homes:
        positions = arrangement.positions(own, name)
        counts += np.bincount(positions[positions >= 0], minlength=size)
    where = " and ".join(homes)
    if (counts > 1).any():
        raise WeightsError(
            f"{place} {int((counts > 1).sum())} of the {size} values of {name} are used twice, in {where}: write copy = true "
            "in the line of a weight that the model has twice"
        )
    if (counts == 0).any():
        raise WeightsError(f"{place} {int((counts == 0).sum())} of the {size} values of {name} are not in {where}")


def _taking(move: Move, name: str) -> Move:
    """A move that takes this one of several equal weights."""
    parts = tuple(each if isinstance(each, str) else _taking(each, name) for each in move.parts)
    if move.takes == "same" and name in parts:
        parts = (name,)
    return Move(**{**vars(move), "parts": parts})


def _equal_ones(move: Move) -> Iterator[list[str]]:
    """The weights that must be equal."""
    if move.takes == "same":
        yield list(move.names())
    for each in move.parts:
        if isinstance(each, Move):
            yield from _equal_ones(each)


def _of(move: Move) -> str:
    names = list(dict.fromkeys(move.names()))
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
