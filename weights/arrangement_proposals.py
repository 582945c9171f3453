"""Which lines of names.toml would make the weights of a port fit, where some are missing and others unexpected.

Lines are found by shapes. Where several fit, names decide; where they do not, all that fit are shown. None is ever taken.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .folding_proposals import Sides, folding
from .layout import Shape
from .moves import read

MOST_PARTS = 4  # layers that are tried as the parts of one
MOST_LINES = 12  # lines in a message
MOST_NUMBERS = 8  # in a name
MOST_LAYERS = 12  # layers of one parent among which parts are searched

Lines = tuple[tuple[str, Any], ...]  # lines of names.toml that belong together: (key, what it is made of)


@dataclass(frozen=True)
class Side:
    """The weights of one side that have no counterpart, with ``*`` for the numbers in their names.

    weights: pattern -> shape; numbers count up, and one with other shapes for other numbers has the first one.
    layers: pattern of a layer -> the last parts of the names of its weights.
    """

    weights: Mapping[str, Shape]
    layers: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, weights: Mapping[str, Shape]) -> Side:
        """The side with these weights."""
        found: dict[str, Shape] = {}
        for name, shape in weights.items():
            found.setdefault(re.sub(r"(?<![^.])\d+(?![^.])", "*", name), tuple(shape))
        layers: dict[str, list[str]] = defaultdict(list)
        for name in found:
            layers[name.rpartition(".")[0]].append(name.rpartition(".")[2])
        return cls(found, {layer: tuple(kinds) for layer, kinds in layers.items() if layer})

    def beside(self) -> Iterator[list[str]]:
        """The layers that have one parent, for every parent of several."""
        parents: dict[str, list[str]] = defaultdict(list)
        for layer in self.layers:
            parents[layer.rpartition(".")[0]].append(layer)
        yield from (layers[:MOST_LAYERS] for layers in parents.values() if len(layers) > 1)


def advice(
    unexpected: Mapping[str, Shape],
    missing: Mapping[str, Shape],
    table: str,
    fitting: Mapping[str, tuple[str, Shape]] | None = None,
) -> str:
    """A clause with the lines to write; "" where none fits.

    unexpected: the weights of the reference that have no place in the port. missing: the weights of the port that get no values,
        by its own names. A weight of another shape is in both. table: the port's table in names.toml.
    fitting: the port's other weights, name -> (name in the reference, shape).
    """
    folded = folding(Sides(unexpected, missing, fitting or {}))
    mine = Side.of({name: shape for name, shape in missing.items() if name not in folded.mine})
    theirs = Side.of({name: shape for name, shape in unexpected.items() if name not in folded.theirs})
    found = [_by_names(options) for options in _options(mine, theirs) if options]
    if not (found or folded.lines):
        return ""
    several = any(len(options) > 1 for options in found)
    lines = [*folded.lines, *(line for options in found for option in options for line in option)]
    shown = "; ".join(f'"{key}" = {_written(value)}' for key, value in lines[:MOST_LINES])
    more = f"; and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
    says = "several lines fit, and the shapes do not tell which is right" if several else "the shapes fit with"
    order = "; layers of one shape are taken in their order" if folded.in_order else ""
    eps = "; add eps = … where a batch norm has another one than 1e-5" if folded.lines else ""
    return f"{says}, in names.toml under [{table}.stored]: {shown}{more}{order}{eps}"


def _options(mine: Side, theirs: Side) -> Iterator[list[tuple[Lines, bool]]]:
    """For every layer of the port, or weight of one, and every group of layers that share one of the reference: the lines that fit.

    Each comes with whether the names say so, too.
    """
    for own, kinds in mine.layers.items():
        fused = list(_fused(own, kinds, mine, theirs))
        yield fused
        for kind in () if fused else kinds:
            yield list(_single(f"{own}.{kind}", mine, theirs))
    for other, kinds in theirs.layers.items():
        yield list(_split(other, kinds, mine, theirs))


def _by_names(options: Sequence[tuple[Lines, bool]]) -> list[Lines]:
    """The options of which the names speak, too; all where there are none."""
    return [lines for lines, named in options if named] or [lines for lines, _ in options]


def _fused(own: str, kinds: Sequence[str], mine: Side, theirs: Side) -> Iterator[tuple[Lines, bool]]:
    for layers in theirs.beside():
        for count in range(2, MOST_PARTS + 1):
            for chosen in combinations(layers, count):
                parts, named = _ordered(own, chosen)
                for lines in _lines(own, kinds, {"fuse": parts}):
                    if _fits(lines, mine, theirs):
                        yield lines, named
                        break


def _lines(own: str, kinds: Sequence[str], value: Mapping[str, Any]) -> Iterator[Lines]:
    """A line for a layer as it is, and then with a transposed weight."""
    yield ((own, dict(value)),)
    taken = next(iter(value))
    lines = []
    for kind in kinds:
        each = {taken: [f"{part}.{kind}" for part in value[taken]]}
        lines.append((f"{own}.{kind}", each if kind == "bias" else {**each, "permute": [1, 0]}))
    yield tuple(lines)


def _single(own: str, mine: Side, theirs: Side) -> Iterator[tuple[Lines, bool]]:
    """Lines for one weight: transposed, a stack of several, or one of a stack."""
    shape, kind = mine.weights[own], own.rpartition(".")[2]
    for other, theirs_shape in theirs.weights.items():
        values: list[dict[str, Any]] = []
        if shape != theirs_shape and len(shape) == len(theirs_shape) == 2:
            values.append({"of": other, "permute": [1, 0]})
        if other.count("*") == own.count("*") + 1:
            values.append({"stack": other})
        if other.count("*") + 1 == own.count("*"):
            values.append({"of": other, "item": "*"})
        for value in values:
            if _fits(((own, value),), mine, theirs):
                yield ((own, value),), own == other or kind in other.split(".")


def _split(other: str, kinds: Sequence[str], mine: Side, theirs: Side) -> Iterator[tuple[Lines, bool]]:
    """Lines for the layers of the port that together are one of the reference."""
    size = theirs.weights[f"{other}.{kinds[0]}"][:1]
    for layers in mine.beside():
        for count in range(2, MOST_PARTS + 1):
            for chosen in combinations(layers, count):
                parts, named = _ordered(other, chosen)
                rows = [mine.weights.get(f"{part}.{kinds[0]}", ())[:1] for part in parts]
                if not all(rows) or sum(each[0] for each in rows) != (size or (0,))[0]:
                    continue
                lines, start = [], 0
                for number, (part, (count_of_rows,)) in enumerate(zip(parts, rows)):
                    equal = len(set(rows)) == 1
                    which = f"{number + 1}/{len(parts)}" if equal else f"{start}:{start + count_of_rows}"
                    lines.append((part, {"of": other, "part": which}))
                    start += count_of_rows
                if _fits(lines, mine, theirs):
                    yield tuple(lines), named


def _ordered(whole: str, parts: Iterable[str]) -> tuple[list[str], bool]:
    """Parts in the order in which the name of the whole has them, and whether it has them all."""
    name = whole.rpartition(".")[2].lower()
    stems = {part: part.rpartition(".")[2].lower().removesuffix("proj").strip("_") for part in parts}
    places = {part: name.find(stem) if stem else -1 for part, stem in stems.items()}
    if min(places.values()) < 0 or len(set(places.values())) < len(places):
        return list(parts), False
    return sorted(parts, key=lambda part: places[part]), True


def _fits(lines: Iterable[tuple[str, Any]], mine: Side, theirs: Side) -> bool:
    """Whether lines make shapes of the port from those of the reference."""
    for key, value in lines:
        weights = [key] if key in mine.weights else [f"{key}.{kind}" for kind in mine.layers.get(key, ())]
        if not all(_makes(value, own.removeprefix(key), mine.weights[own], theirs) for own in weights):
            return False
    return True


def _makes(value: Mapping[str, Any], suffix: str, shape: Shape, theirs: Side) -> bool:
    """Whether the right side of a line makes a weight of this shape. suffix: what follows the key in the weight's name."""
    move = read(value).of_weight(["0"] * MOST_NUMBERS, suffix, [_numbered(name, "0") for name in theirs.weights])
    shapes = {_numbered(name, "0"): each for name, each in theirs.weights.items()}
    if not set(move.names()) <= set(shapes):
        return False
    try:
        made = move.make(lambda name: np.empty(shapes[name], np.int8)).shape
    except WeightsError:
        return False
    stacked = "stack" in value  # how many there are is not known here
    return made[stacked:] == shape[stacked:] and len(made) == len(shape)


def _numbered(pattern: str, number: str) -> str:
    return pattern.replace("*", number)


def _written(value: Mapping[str, Any]) -> str:
    """A table of TOML in one line."""

    def written(each: Any) -> str:
        if isinstance(each, list):
            return f"[{', '.join(map(written, each))}]"
        return f'"{each}"' if isinstance(each, str) else str(each)

    return f"{{ {', '.join(f'{key} = {written(each)}' for key, each in value.items())} }}"
