"""Why two parts of a language model's weights differ: mistakes that are known from converters and loaders.

A supposed mistake is undone and the values of some rows are compared again. It is the cause when nearly all of them are right then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .canonical import Array
from .closeness import rounded_to
from .language_names import GGUF, MEGATRON, META, NORMS, Key
from .language_parts import HALVES, HEAD_SIZES, NEIGHBOURS, PLUS_ONE, Part, Side, heads_of
from .quantised import Values, outside

SAMPLE = 2**18  # values that are compared for a supposed mistake
MOST = 0.98  # share of values that are right when the mistake is undone
MOST_COMPENSATED = 0.75  # the same where numbers that are not the nearest ones compensate errors; see language.py
FACTOR = 0.02  # a factor that is at least so far from 1 is told
ALIKE = 0.6  # correlation of two rows with the same values, although one of them may have other scales
RELATED = 0.3  # correlation from which on two arrays are taken for states of the same weights
MOST_GROUPS = 1024  # groups of a weight that are compared with each other
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
    for find in (_layout, _other_part, _initial, _scaled, _shifted, _zeros, _blocks, _groups, _rows, _plain_rounding):
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


def _fits(sides: Sides, mine: Values, theirs: Values) -> bool:
    most = MOST_COMPENSATED if any("compensated" in side.stored.facts for side in sides) else MOST
    return float(outside(mine, theirs).mean()) <= 1 - most


def match_by_content(left: Side, right: Side) -> None:
    """Give parts that only one file has the key of an equal part of the other file: their names are not in the table."""
    for key in [key for key in left.parts if key not in right.parts]:
        part = left.parts[key]
        for other in [other for other in right.parts if other not in left.parts]:
            mate = right.parts[other]
            if mate.shape == part.shape and _fits((left, right), *_values((left, right), (part, mate))):
                right.parts[key] = right.parts.pop(other)
                break


# -- another layout ---------------------------------------------------------------------------------------------------


def _layout(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    for says, is_right, changed in _layouts(key, sides, parts):
        if changed[0].shape == changed[1].shape and _fits(sides, *_values(sides, changed)):
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


def _turns(part: Part) -> Iterator[tuple[str, bool, Part]]:
    rows, columns = part.shape
    if min(rows, columns) > 1 and part.rows is None and not part.heads:
        yield "the {} is transposed", False, replace(part, shape=(columns, rows), turned=not part.turned)


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
        mine, theirs = _values(sides, (parts[0], part))
        if _fits(sides, mine, theirs) and np.ptp(theirs.array):
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
    bound = float(np.abs(array).max())
    if abs(kurtosis - 1.8) < max(0.1, 5 / np.sqrt(array.size)) and abs(deviation * np.sqrt(3) / bound - 1) < INITIAL:
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
    if abs(factor - 1) < FACTOR or abs(factor) < FACTOR or not _fits(sides, mine, theirs.times(factor)):
        return None
    return Cause(f"all of its values are × {factor:.3g}")


def _shifted(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether all values are whole steps away, by the same number of them."""
    mine, theirs = _values(sides, parts)
    step = mine.step
    if not (step > 0).all():
        return None
    steps = (mine.array - theirs.array) / step
    number = round(float(np.median(steps)))
    if not number or not _fits(sides, mine, theirs.like(theirs.array + number * step)):
        return None
    many, size = abs(number), "small" if number > 0 else "large"
    says = f"its zero point is {many} too {size}: all of its values are {many} step{'s' * (many > 1)} beside the reference's"
    return Cause(says + _wrapped(many, mine))


def _zeros(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether blocks have wrong zero points: their values are whole steps away, each block's by a number of its own."""
    steps = sides[0].stored.steps.get(parts[0].name)
    if steps is None or parts[0].turned:
        return None
    mine, theirs = _values(sides, parts)
    step, width = mine.step, parts[0].shape[1] // steps.shape[-1]
    if not (step > 0).all():
        return None
    away = ((mine.array - theirs.array) / step).reshape(len(step), -1, width)
    number = np.rint(np.median(away, axis=-1))
    moved = theirs.like(theirs.array + np.repeat(number, width, axis=1) * step)
    if not number.any() or width == 1 or not _fits(sides, mine, moved):
        return None
    row, block = (int(each[0]) for each in np.nonzero(number))
    wrong, first = int((number != 0).sum()), int(number[row, block])
    size = "small" if first > 0 else "large"
    return Cause(
        f"the zero points of {wrong} of {number.size} blocks that were looked at are wrong, the first at [{row}, {block * width}]: "
        f"{abs(first)} too {size}{_wrapped(abs(first), mine)}",
        whole=False,
    )


def _wrapped(number: int, values: Values) -> str:
    """What makes a zero point wrong by the greatest number of its type."""
    greatest = round(float(((values.high - values.low) / values.step).flat[0]))
    return f"; {greatest} is what 0 - 1 becomes in a type without signs" if number == greatest else ""


def _groups(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether inputs have the scales of other groups, as where their order was ignored."""
    steps = sides[0].stored.steps.get(parts[0].name)
    if steps is None or parts[0].turned:
        return None
    mine, theirs = _values(sides, parts)
    inputs = parts[0].shape[1]
    low, high = mine.low, mine.high
    scale = high - low
    if not (scale > 0).all():
        return None
    # Inputs with equal ranges in all rows are of one group.
    _, first, group = np.unique(
        np.stack([low, high]).reshape(-1, inputs), axis=1, return_index=True, return_inverse=True
    )
    group = group.reshape(-1)
    if not 1 < len(first) <= MOST_GROUPS:
        return None
    place = (mine.array - low) / scale
    right = np.zeros((len(first), inputs))
    for index, column in enumerate(first):
        made = low[:, [column]] + place * scale[:, [column]]
        half = mine.half[:, [column]]
        right[index] = (np.abs(made - theirs.array) <= half).mean(axis=0)
    best = right.argmax(axis=0)
    moved = (best != group) & (right.max(axis=0) > right[group, np.arange(inputs)] + 0.1)
    if moved.mean() < 0.2 or float(right.max(axis=0).mean()) < 0.9:
        return None
    at = int(np.argmax(moved))
    return Cause(
        f"{int(moved.sum())} of {inputs} inputs have the scales of other groups (g_idx), the first at {at}: those of the group of "
        f"input {int(first[group[at]])}, and it needs those of the group of input {int(first[best[at]])}"
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
    step = mine.step.reshape(one.shape)[..., 0]
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
    mine, theirs = _values(sides, parts)
    to = rounded_to(mine.array, theirs.array)
    return Cause(f"rounded to {to}") if to else None
