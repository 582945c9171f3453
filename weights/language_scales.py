"""Mistakes of scales, zero points and packed numbers, of which ``language_causes`` tries one after the other.

Each function returns the cause of a difference, or None.
"""

from __future__ import annotations

import math

import numpy as np

from .language_names import GGUF, Key
from .levels import LEVELS
from .quantised import Values, outside
from .supposed import Cause, Parts, Sides, fits, sampled, sampled_values

FACTOR = 0.02  # a factor that is at least so far from 1 is told
MOST_GROUPS = 1024  # groups of a weight that are compared with each other


# -- other scales -----------------------------------------------------------------------------------------------------


def inverse(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether the numbers of a file were divided by their scales, or the scales are the inverse of the right ones."""
    mine, theirs = sampled_values(sides, parts)
    if sides[0].style == GGUF or not (mine.step > 0).all() or not fits(mine, theirs.like(theirs.array * mine.step**2)):
        return None
    return Cause("its scales are the inverse of the right ones")


def turned_scales(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether the scales of the blocks of a square weight are those of the blocks in its other direction."""
    steps, part = sides[0].stored.steps.get(parts[0].name), parts[0]
    if steps is None or not part.whole or part.turned or part.heads or part.shape[0] != part.shape[1]:
        return None
    mine, theirs = sampled_values(sides, parts)
    width, which = part.shape[1] // steps.shape[-1], sampled(part)
    turned = steps[4].reshape(part.shape[0], -1)[:, which // width].T.astype(np.float64)
    if not (turned > 0).all() or not fits(mine, theirs.like(theirs.array * mine.step / turned)):
        return None
    return Cause("its scales are transposed")


# -- other steps ------------------------------------------------------------------------------------------------------


def scaled(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether all values are multiplied by one factor."""
    mine, theirs = sampled_values(sides, parts)
    size = float((theirs.array**2).sum())
    factor = float((mine.array * theirs.array).sum()) / size if size else 1.0
    if abs(factor - 1) < FACTOR or abs(factor) < FACTOR:
        return None
    power = math.copysign(
        2.0 ** round(math.log2(abs(factor))), factor
    )  # values at the end of a range make the estimate smaller
    for each in dict.fromkeys((factor, power)):
        if abs(each - 1) >= FACTOR and fits(mine, theirs.times(each)):
            return Cause(f"all of its values are × {each:.3g}")
    return None


def shifted(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether all values are whole steps away, by the same number of them."""
    mine, theirs = sampled_values(sides, parts)
    step = mine.step
    if not _has_zero_points(sides, parts) or not (step > 0).all():
        return None
    steps = (mine.array - theirs.array) / step
    number = round(float(np.median(steps)))
    if not number or not fits(mine, theirs.like(theirs.array + number * step)):
        return None
    many, size = abs(number), "small" if number > 0 else "large"
    says = f"its zero point is {many} too {size}: all of its values are {many} step{'s' * (many > 1)} beside the reference's"
    return Cause(says + _wrapped(many, mine))


def zeros(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether blocks have wrong zero points: their values are whole steps away, each block's by a number of its own."""
    steps = sides[0].stored.steps.get(parts[0].name)
    if steps is None or parts[0].turned or not _has_zero_points(sides, parts):
        return None
    mine, theirs = sampled_values(sides, parts)
    step, width = mine.step, parts[0].shape[1] // steps.shape[-1]
    if not (step > 0).all():
        return None
    away = ((mine.array - theirs.array) / step).reshape(len(step), -1, width)
    number = np.rint(np.median(away, axis=-1))
    moved = theirs.like(theirs.array + np.repeat(number, width, axis=1) * step)
    if not number.any() or width == 1 or not fits(mine, moved):
        return None
    row, block = (int(each[0]) for each in np.nonzero(number))
    wrong, first = int((number != 0).sum()), int(number[row, block])
    size = "small" if first > 0 else "large"
    return Cause(
        f"the zero points of {wrong} of {number.size} blocks that were looked at are wrong, the first at [{row}, {block * width}]: "
        f"{abs(first)} too {size}{_wrapped(abs(first), mine)}",
        whole=False,
    )


def _has_zero_points(sides: Sides, parts: Parts) -> bool:
    """Whether the values of the left are whole steps apart."""
    return sides[0].stored.quantised.get(parts[0].name, "") not in LEVELS


def _wrapped(number: int, values: Values) -> str:
    """What makes a zero point wrong by the greatest number of its type."""
    greatest = round(float(((values.high - values.low) / values.step).flat[0]))
    return f"; {greatest} is what 0 - 1 becomes in a type without signs" if number == greatest else ""


def groups(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether inputs have the scales of other groups, as where their order was ignored."""
    steps = sides[0].stored.steps.get(parts[0].name)
    if steps is None or parts[0].turned:
        return None
    mine, theirs = sampled_values(sides, parts)
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
        half = mine.half / scale * scale[:, [column]]
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


def blocks(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether the blocks have wrong scales, and whether these are the scales of other blocks."""
    steps = sides[0].stored.steps.get(parts[0].name)
    if steps is None or parts[0].turned:
        return None
    mine, theirs = sampled_values(sides, parts)
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


# -- other columns ----------------------------------------------------------------------------------------------------

# What is exchanged -> (columns of a group, the order of the columns in it).
IN_BYTES = {
    "the two numbers of each byte are exchanged": (2, (1, 0)),
    "the two numbers of each byte are exchanged, which are half a block of 32 apart": (
        32,
        (*range(16, 32), *range(16)),
    ),
    "the two numbers of each byte are exchanged, which are 32 apart": (64, (*range(32, 64), *range(32))),
    "the numbers of each int32 are in reverse order": (8, tuple(range(7, -1, -1))),
    "the two numbers of each byte are neighbours, and they are half a block of 32 apart in its type": (
        32,
        tuple(place // 2 + 16 * (place % 2) for place in range(32)),
    ),
    "the two numbers of each byte are half a block of 32 apart, and they are neighbours in its type": (
        32,
        tuple(2 * (place % 16) + place // 16 for place in range(32)),
    ),
}


def columns(key: Key, sides: Sides, parts: Parts) -> Cause | None:
    """Whether the numbers in the bytes of a packed type are in another order."""
    columns = parts[0].shape[1]
    if parts[0].name not in sides[0].stored.steps or parts[0].turned:
        return None
    mine, theirs = sampled_values(sides, parts)
    for says, (size, order) in IN_BYTES.items():
        if columns % size == 0:
            places = (np.arange(0, columns, size)[:, None] + np.array(order)).reshape(-1)
            if fits(mine, theirs.columns(places)):
                return Cause(says)
    return None
