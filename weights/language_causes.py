"""Why two parts of a language model's weights differ: mistakes that are known from converters and loaders.

A supposed mistake is undone and the values of some rows are compared again. It is the cause when nearly all of them are right then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .canonical import Array
from .closeness import rounded_to
from .language_names import GGUF, MEGATRON, META, NORMS, Key
from .language_parts import HALVES, HEAD_SIZES, NEIGHBOURS, PLUS_ONE, Part, Side, heads_of
from .language_scales import blocks, columns, groups, inverse, scaled, shifted, turned_scales, zeros
from .supposed import Cause, Parts, Sides, fits, sampled_values

ALIKE = 0.6  # correlation of two rows with the same values, although one of them may have other scales
RELATED = 0.3  # correlation from which on two arrays are taken for states of the same weights
INITIAL = 0.05  # relative difference of a standard deviation from that of an initialiser
DEVIATIONS = (0.02, 0.01, 0.006, 0.04)  # usual ones of initialisers of language models


def cause(key: Key, sides: Sides, parts: Parts) -> Cause:
    """The cause of a difference; one that says nothing where none is known."""
    finders = (
        _layout,
        _other_part,
        inverse,
        turned_scales,
        columns,
        _initial,
        scaled,
        shifted,
        zeros,
        blocks,
        groups,
        _rows,
    )
    for find in (*finders, _plain_rounding):
        found = find(key, sides, parts)
        if found is not None:
            return found
    mine, theirs = sampled_values(sides, parts)
    related = _correlation(mine.array, theirs.array)
    return Cause("" if related > RELATED else f"has other values, with a correlation of {related:.2f}", whole=False)


def match_by_content(left: Side, right: Side) -> None:
    """Give parts that only one file has the key of an equal part of the other file: their names are not in the table."""
    for key in [key for key in left.parts if key not in right.parts]:
        part = left.parts[key]
        for other in [other for other in right.parts if other not in left.parts]:
            mate = right.parts[other]
            if mate.shape == part.shape and fits(*sampled_values((left, right), (part, mate))):
                right.parts[key] = right.parts.pop(other)
                break


# -- another layout ---------------------------------------------------------------------------------------------------


def _layout(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    for says, is_right, changed in _layouts(key, sides, parts):
        if changed[0].shape == changed[1].shape and fits(*sampled_values(sides, changed)):
            return Cause(says, parts=changed if is_right else None)
    return None


def _layouts(key: Key, sides: Sides, parts: Parts) -> Iterator[tuple[str, bool, Parts]]:
    """Other layouts of either part: what to say, whether it is right, and the parts."""
    for index, where in ((0, "left"), (1, "right")):
        side, part = sides[index], parts[index]
        for says, is_right, changed in (
            *_rotations(key, sides, side, part),
            *_ones(key, side, part),
            *_turns(side, part),
            *_in_turn(key, side, part),
        ):
            yield says.format(where), is_right, (changed, parts[1]) if index == 0 else (parts[0], changed)


def _rotations(key: Key, sides: Sides, side: Side, part: Part) -> Iterator[tuple[str, bool, Part]]:
    if key.kind not in ("q", "k"):
        return
    told = heads_of(key.kind, sides)
    expected = (
        ""
        if part.heads or not side.architecture
        else f", which files of the architecture {side.architecture} do not have"
    )
    if part.heads:
        needs = f"{side.architecture} in GGUF" if side.style == GGUF else f"files of {side.style}"
        yield (
            f"the rows of the {{}} that rotate together are not neighbours, as {needs} needs them",
            False,
            replace(part, heads=0),
        )
    known = side.style != GGUF or side.architecture in NEIGHBOURS | HALVES
    for heads in dict.fromkeys([told, *(part.shape[0] // size for size in HEAD_SIZES if part.shape[0] % size == 0)]):
        if not heads or heads == part.heads or part.shape[0] % (2 * heads):
            continue
        is_right = (not part.heads and not known) or (side.style == META and not told)
        neighbours = "the rows of the {} that rotate together are neighbours"
        if part.heads:
            yield f"{neighbours} in {heads} heads, and the file has {part.heads}", is_right, replace(part, heads=heads)
        else:
            yield f"{neighbours}{expected}", is_right, replace(part, heads=heads)


def _ones(key: Key, side: Side, part: Part) -> Iterator[tuple[str, bool, Part]]:
    if key.kind not in NORMS:
        return
    if part.add:
        yield (
            f"the {{}} lacks the one that is added to norms in GGUF of {side.architecture}",
            False,
            replace(part, add=0.0),
        )
        return
    known = side.style != GGUF or side.architecture in NEIGHBOURS | HALVES | PLUS_ONE
    for add in (-1.0, 1.0):
        yield f"the {{}} has one {'more' if add < 0 else 'less'}", not known, replace(part, add=add)


def _turns(side: Side, part: Part) -> Iterator[tuple[str, bool, Part]]:
    if min(part.shape) > 1 and part.rows is None and not part.heads:
        yield "the {} is transposed", False, side.turned(part)


def _in_turn(key: Key, side: Side, part: Part) -> Iterator[tuple[str, bool, Part]]:
    if side.style != MEGATRON or part.whole or key.kind not in ("q", "k", "v"):
        return
    count, all_rows = part.shape[0], math.prod(side.stored.arrays[part.name].shape[:-1])
    begin = {"q": 0, "k": all_rows - 2 * count, "v": all_rows - count}[key.kind]
    says = "q, k and v of the {} follow each other, and files of Megatron have those of every group of heads together"
    yield says, False, part.cut(np.arange(begin, begin + count))


# -- another weight ---------------------------------------------------------------------------------------------------


def _other_part(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether the left has the values of another weight of the reference."""
    for other, part in sides[1].parts.items():
        if other == key or part.shape != parts[0].shape:
            continue
        mine, theirs = sampled_values(sides, (parts[0], part))
        if fits(mine, theirs) and np.ptp(theirs.array):
            place = part.name if part.whole else f"another part of {part.name}: {other.says()}"
            return Cause(f"has the values of {place}")
    return None


def _initial(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether a part has nothing to do with the other one, and numbers as an initialiser draws them."""
    both = sampled_values(sides, parts)
    if abs(_correlation(both[0].array, both[1].array)) > max(0.1, 4 / np.sqrt(both[0].array.size)):
        return None
    drawn = [_initialiser(each.array) for each in both]
    for where, says in zip(("left", "right"), drawn):
        if says and not all(drawn):
            return Cause(f"the {where} was never loaded: it has {says}, and nothing of the other's values")
    return None


def _initialiser(array: Array) -> str:
    """The initialiser that has made an array; "" when none is known to."""
    first = float(array.flat[0])
    if not np.ptp(array):
        return f"only values {first:g}" if first in (0.0, 1.0) else ""
    if array.size < 256:
        return ""
    deviation, mean = float(array.std()), float(array.mean())
    if abs(mean) > 5 * deviation / np.sqrt(array.size):
        return ""
    kurtosis = float((((array - mean) / deviation) ** 4).mean())
    for usual in DEVIATIONS:
        if abs(deviation / usual - 1) < INITIAL and abs(kurtosis - 3) < max(0.2, 15 / np.sqrt(array.size)):
            return f"normal values of standard deviation {usual:g}, like those of an initialiser"
    bound = float(np.abs(array).max())
    if abs(kurtosis - 1.8) < max(0.1, 5 / np.sqrt(array.size)) and abs(deviation * np.sqrt(3) / bound - 1) < INITIAL:
        return f"uniform values up to {bound:.3g}, like those of an initialiser"
    return ""


def _correlation(mine: Array, theirs: Array) -> float:
    one, other = mine - mine.mean(), theirs - theirs.mean()
    size = float(np.sqrt((one * one).sum() * (other * other).sum()))
    return float((one * other).sum()) / size if size else 0.0


# -- other rows -------------------------------------------------------------------------------------------------------


def _rows(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether rows have the values of other rows."""
    rows, columns = parts[0].shape
    if columns < 16 or rows < 4:
        return None
    some = np.unique(np.linspace(0, rows - 1, min(rows, 64)).astype(np.int64))
    few = slice(0, min(columns, 512))
    mine = _unit(sides[0].values(parts[0], some).array[:, few])
    theirs = _unit(sides[1].values(parts[1], np.arange(rows)).array[:, few])
    alike = mine @ theirs.T
    best = np.argmax(alike, axis=1)
    if float((alike.max(axis=1) > ALIKE).mean()) < 0.9 or len(set(best.tolist())) < 0.9 * len(some):
        return None
    moved = best != some
    if not moved.any():
        return None
    said = _put_back(rows, some, best) if key.kind in ("q", "k") else ""
    if said:
        return Cause(said)
    first = int(np.argmax(moved))
    away, counts = np.unique(best - some, return_counts=True)
    if away[np.argmax(counts)] and counts.max() > 0.9 * len(some):
        return Cause(f"row i has the values of row i{int(away[np.argmax(counts)]):+d} of the reference")
    says = f"the rows are in another order: row {int(some[first])} has the values of row {int(best[first])} of the reference"
    return Cause(
        says + ("; every eight are by themselves, as AWQ packs them" if (best // 8 == some // 8).all() else "")
    )


def _put_back(rows: int, some: Array, best: Array) -> str:
    """Whether rows that rotate together were made neighbours, and put back with another number of heads. See ``_rows``."""
    counts = [rows // size for size in HEAD_SIZES if rows % size == 0]
    for one in counts:
        together = np.arange(rows).reshape(one, 2, -1).swapaxes(1, 2).reshape(-1)
        for other in counts:
            apart = np.arange(rows).reshape(other, -1, 2).swapaxes(1, 2).reshape(-1)
            if one != other and np.array_equal(together[apart][some], best):
                numbers = f"{min(one, other)} and {max(one, other)}"
                return f"the rows that rotate together were made neighbours and put back with two numbers of heads, {numbers}"
    return ""


def _unit(array: Array) -> Array:
    centred = array - array.mean(axis=1, keepdims=True)
    size = np.sqrt((centred * centred).sum(axis=1, keepdims=True))
    unit: Array = centred / np.where(size > 0, size, 1.0)
    return unit


def _plain_rounding(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    if any(part.name in side.stored.steps for side, part in zip(sides, parts)):
        return None
    mine, theirs = sampled_values(sides, parts)
    to = rounded_to(mine.array, theirs.array)
    return Cause(f"rounded to {to}") if to else None
