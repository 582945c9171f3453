"""Why two parts of a language model's weights differ: mistakes that are known from converters and loaders.

A supposed mistake is undone and the values of some rows are compared again. It is the cause when nearly all of them are right then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .canonical import Array
from .closeness import rounded_to
from .language_names import GGUF, META, NORMS, Key
from .language_parts import HALVES, NEIGHBOURS, PLUS_ONE, Part, Side, heads_of
from .quantised import Values, outside

SAMPLE = 2**18  # values that are compared for a supposed mistake
MOST = 0.98  # share of values that are right when the mistake is undone
FACTOR = 0.02  # a factor that is at least so far from 1 is told
RELATED = 0.3  # correlation from which on two arrays are taken for states of the same weights
SIZES = (32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 16, 8)  # rows of a head that are tried when no file says it
INITIAL = 0.05  # relative difference of a standard deviation from that of an initialiser
DEVIATIONS = (0.02, 0.01, 0.006, 0.04)  # usual ones of initialisers of language models

Sides = tuple[Side, Side]
Parts = tuple[Part, Part]


@dataclass(frozen=True)
class Cause:
    """says: how the left part follows from the right one, as a phrase. whole: whether it explains nearly all values.

    parts: the two with the layout that was found, where a right file may have it; else None.
    """

    says: str = ""
    whole: bool = True
    parts: Parts | None = None


def cause(key: Key, sides: Sides, parts: Parts) -> Cause:
    """The cause of a difference; one that says nothing where none is known."""
    for find in (_layout, _other_part, _initial, _scaled, _shifted, _blocks, _rows, _plain_rounding):
        found = find(key, sides, parts)
        if found is not None:
            return found
    mine, theirs = _values(sides, parts)
    related = _correlation(mine.array, theirs.array)
    return Cause("" if related > RELATED else f"has other values, with a correlation of {related:.2f}", whole=False)


def _values(sides: Sides, parts: Parts) -> tuple[Values, Values]:
    """The values of the same rows of both parts, as many as are sampled."""
    rows, columns = parts[0].shape
    count = min(rows, max(8, SAMPLE // columns))
    which = np.unique(np.linspace(0, rows - 1, count).astype(np.int64))
    return sides[0].values(parts[0], which), sides[1].values(parts[1], which)


def _fits(mine: Values, theirs: Values) -> bool:
    return float(outside(mine, theirs).mean()) <= 1 - MOST


def match_by_content(left: Side, right: Side) -> None:
    """Give parts that only one file has the key of an equal part of the other file: their names are not in the table."""
    for key in [key for key in left.parts if key not in right.parts]:
        part = left.parts[key]
        for other in [other for other in right.parts if other not in left.parts]:
            mate = right.parts[other]
            if mate.shape == part.shape and _fits(*_values((left, right), (part, mate))):
                right.parts[key] = right.parts.pop(other)
                break


# -- another layout ---------------------------------------------------------------------------------------------------


def _layout(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    for says, is_right, changed in _layouts(key, sides, parts):
        if changed[0].shape == changed[1].shape and _fits(*_values(sides, changed)):
            return Cause(says, parts=changed if is_right else None)
    return None


def _layouts(key: Key, sides: Sides, parts: Parts) -> Iterator[tuple[str, bool, Parts]]:
    """Other layouts of either part: what to say, whether it is right, and the parts."""
    for index, where in ((0, "left"), (1, "right")):
        side, part = sides[index], parts[index]
        for says, is_right, changed in (
            *_rotations(key, sides, side, part),
            *_ones(key, side, part),
            *_turns(part),
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
    for heads in dict.fromkeys([told, *(part.shape[0] // size for size in SIZES if part.shape[0] % size == 0)]):
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


def _turns(part: Part) -> Iterator[tuple[str, bool, Part]]:
    rows, columns = part.shape
    if min(rows, columns) > 1 and part.rows is None and not part.heads:
        yield "the {} is transposed", False, replace(part, shape=(columns, rows), turned=not part.turned)


# -- another weight ---------------------------------------------------------------------------------------------------


def _other_part(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether the left has the values of another weight of the reference."""
    for other, part in sides[1].parts.items():
        if other == key or part.shape != parts[0].shape:
            continue
        mine, theirs = _values(sides, (parts[0], part))
        if _fits(mine, theirs) and np.ptp(theirs.array):
            place = part.name if part.whole else f"another part of {part.name}: {other.says()}"
            return Cause(f"has the values of {place}")
    return None


def _initial(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether a part has nothing to do with the other one, and numbers as an initialiser draws them."""
    both = _values(sides, parts)
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
    bound = 1 / np.sqrt(array.shape[1])  # of torch's Linear
    if abs(deviation * np.sqrt(3) / bound - 1) < INITIAL and float(np.abs(array).max()) <= bound:
        return f"uniform values up to {bound:.3g}, like those of an initialiser"
    return ""


def _correlation(mine: Array, theirs: Array) -> float:
    one, other = mine - mine.mean(), theirs - theirs.mean()
    size = float(np.sqrt((one * one).sum() * (other * other).sum()))
    return float((one * other).sum()) / size if size else 0.0


# -- other steps ------------------------------------------------------------------------------------------------------


def _scaled(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    mine, theirs = _values(sides, parts)
    size = float((theirs.array**2).sum())
    factor = float((mine.array * theirs.array).sum()) / size if size else 1.0
    if abs(factor - 1) < FACTOR or abs(factor) < FACTOR or not _fits(mine, theirs.times(factor)):
        return None
    return Cause(f"all of its values are × {factor:.3g}")


def _shifted(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether all values are whole steps away, by the same number of them."""
    mine, theirs = _values(sides, parts)
    step = 2 * mine.half
    if not (step > 0).all():
        return None
    steps = (mine.array - theirs.array) / step
    number = round(float(np.median(steps)))
    if not number or not _fits(mine, theirs.like(theirs.array + number * step)):
        return None
    many, size = abs(number), "small" if number > 0 else "large"
    return Cause(
        f"its zero point is {many} too {size}: all of its values are {many} step{'s' * (many > 1)} beside the reference's"
    )


def _blocks(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether the blocks have wrong scales, and whether these are the scales of other blocks."""
    steps = sides[0].stored.steps.get(parts[0].name)
    if steps is None or parts[0].turned:
        return None
    mine, theirs = _values(sides, parts)
    width = parts[0].shape[1] // steps.shape[-1]
    one, other = (each.array.reshape(len(each.array), -1, width) for each in (mine, theirs))
    size = (other * other).sum(-1)
    factor = (one * other).sum(-1) / np.where(size > 0, size, 1.0)
    wrong = outside(mine, theirs).reshape(one.shape).any(-1) & (np.abs(factor - 1) > FACTOR) & (factor != 0)
    undone = theirs.like(theirs.array * np.repeat(np.where(wrong, factor, 1.0), width, axis=1))
    if not wrong.any() or float(outside(mine, undone).mean()) > 0.1 * float(outside(mine, theirs).mean()):
        return None
    step = 2 * mine.half.reshape(one.shape)[..., 0]
    wanted, has = np.sort(step[wrong] / np.abs(factor[wrong])), np.sort(step[wrong])
    row, column = (int(each[0]) for each in np.nonzero(wrong))
    says = f"{int(wrong.sum())} of {wrong.size} blocks that were looked at have another scale"
    if wrong.sum() > 1 and float(np.median(np.abs(wanted / has - 1))) < 0.05:
        return Cause(f"{says}: those of other blocks", whole=False)
    return Cause(f"{says}, the first at [{row}, {column * width}]: × {factor[row, column]:.3g}", whole=False)


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
    if float((alike.max(axis=1) > 0.9).mean()) < 0.9 or len(set(best.tolist())) < 0.9 * len(some):
        return None
    moved = best != some
    if not moved.any():
        return None
    first = int(np.argmax(moved))
    away, counts = np.unique(best - some, return_counts=True)
    if away[np.argmax(counts)] and counts.max() > 0.9 * len(some):
        return Cause(f"row i has the values of row i{int(away[np.argmax(counts)]):+d} of the reference")
    return Cause(
        f"the rows are in another order: row {int(some[first])} has the values of row {int(best[first])} of the reference"
    )


def _unit(array: Array) -> Array:
    centred = array - array.mean(axis=1, keepdims=True)
    size = np.sqrt((centred * centred).sum(axis=1, keepdims=True))
    unit: Array = centred / np.where(size > 0, size, 1.0)
    return unit


def _plain_rounding(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    if any(part.name in side.stored.steps for side, part in zip(sides, parts)):
        return None
    mine, theirs = _values(sides, parts)
    to = rounded_to(mine.array, theirs.array)
    return Cause(f"rounded to {to}") if to else None
