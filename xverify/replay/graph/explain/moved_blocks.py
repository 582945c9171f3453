"""Blocks of a quantised weight whose values are away from the reference's together: by a whole step, or by a factor.

A right value is up to one step away, in either direction. All values of a block do not go in one direction by chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .quantised_weights import Weight

LEAST = 12  # values of a block that are inside of its range
STEPS = (
    14  # of the range of a type of 4 bits; of fewer, one is so large that the values of a block are not even within it
)
# Steps by which the values of a block lie beside the reference's in the mean. Where a tool rounds the zero point this is up to 0.5,
# and the rounding of n values adds 0.29 / sqrt(n), of which five times are allowed. Blocks of 32 values that GPTQ quantised had at
# most 0.19, and a zero point that is off by one makes it 1.
SHIFT, SPREAD = 0.5, 5 * 0.29
NEAREST, BEYOND = 0.51, 0.56  # steps from the reference's value, rounded to the nearest; and with a scale in 16 bits
FACTOR = 0.01  # relative: how far a scale must at least be from the right one; one in bfloat16 is 0.004 away
ENOUGH = 512  # values of the other blocks, all rounded to the nearest, that tell that the tool rounds so
TRIED = 256  # blocks whose factor is looked for


def moved_block(weight: Weight, right: Any) -> str:
    """What is wrong with the values of a block together, as a clause; "" where nothing is. right: the values of the reference."""
    shape = right.shape
    step, low, high = (np.broadcast_to(each, shape) for each in (weight.step, weight.low, weight.high))
    low, high = np.minimum(low, high), np.maximum(low, high)
    blocks = _blocks(step, low)
    if blocks is None or not np.all(step > 0):
        return ""
    flat, count = blocks.reshape(-1), int(blocks.max()) + 1
    inside = ((right > low) & (right < high)).reshape(-1)
    away = ((weight.values - np.clip(right, low, high)) / step).reshape(-1)
    sizes = np.bincount(flat[inside], minlength=count)
    means = np.bincount(flat[inside], away[inside], count) / np.maximum(sizes, 1)
    enough = sizes >= LEAST
    limits = SHIFT + SPREAD / np.sqrt(np.maximum(sizes, 1))
    shifted = np.flatnonzero(enough & (np.abs(means) > limits)) if np.min((high - low) / step) > STEPS else np.array([])
    if shifted.size and 2 * shifted.size <= enough.sum():
        steps = int(np.rint(means[shifted[0]]))
        size = f"{abs(steps)} too {'small' if steps > 0 else 'large'}"
        return (
            f"the zero point of {_named(blocks, shifted)} is {size}: all its values lie to one side of the reference's"
        )
    far = np.bincount(flat, np.abs(away) > BEYOND, count)
    strange = np.flatnonzero((far >= 2) & enough)
    others = ~np.isin(flat, strange)
    if not strange.size or others.sum() < ENOUGH or strange.size > TRIED or (np.abs(away[others]) > NEAREST).any():
        return ""
    factors = {}
    for block in strange:
        of = np.flatnonzero(flat == block)
        factor = _factor(*(each.reshape(-1)[of] for each in (weight.values, right, step, low, high)))
        if factor:
            factors[int(block)] = factor
    if not factors:
        return ""
    block, factor = next(iter(factors.items()))
    return f"the scale of {_named(blocks, np.array(list(factors)))} is × {factor:.3g}"


def _blocks(step: Any, low: Any) -> Any:
    """The number of each value's block, which has one scale and one zero point; None where there is one block or none is told."""
    found = np.zeros(step.shape, np.int64)
    for axis in range(step.ndim):
        changes = (np.diff(step, axis=axis) != 0) | (np.diff(low, axis=axis) != 0)
        ends = changes.any(axis=tuple(each for each in range(step.ndim) if each != axis))
        place = np.concatenate([[0], np.cumsum(ends)])
        found = found * (place[-1] + 1) + place.reshape([-1 if each == axis else 1 for each in range(step.ndim)])
    return found if found.size and found.max() > 0 else None


def _factor(own: Any, right: Any, step: Any, low: Any, high: Any) -> float:
    """The number that the scale was multiplied with, where rounding to the nearest with the right scale gives these values; or 0.

    Each value that is not at an end of the range bounds what the right scale may be.
    """
    inner = (own > low + step / 2) & (own < high - step / 2) & (np.abs(own) > step / 2)
    number, value = np.abs(own[inner]) / step[inner], np.sign(own[inner]) * right[inner] / step[inner]
    if number.size < LEAST // 2 or (value <= 0).all():
        return 0.0
    least, most = np.max(value / (number + NEAREST)), np.min(value / np.maximum(number - NEAREST, 1e-9))
    if least > most or (least <= 1 + FACTOR and most >= 1 - FACTOR):
        return 0.0
    return float(2 / (least + most))


def _named(blocks: Any, which: Any) -> str:
    """The first of some blocks by the place of its first value, and how many others there are."""
    place = list(map(int, np.unravel_index(int(np.argmax(blocks.reshape(-1) == which[0])), blocks.shape)))
    more = f" and {which.size - 1} other blocks" if which.size > 1 else ""
    return f"the block at {place}{more}"
