"""Says why a quantised weight stands for other values than those of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..layers import BIAS, FAMILIES
from .quantised_weights import Weight

LARGEST_SHIFT = 128  # steps by which a zero point can be off
SHARE = 0.98  # of the values that a cause must explain; the ends of the range cut off the others
NEAR = 0.03  # relative: how far factors by least squares may be from those that they are taken for
SHIFTED = 64  # channels whose zero points are looked at
FEW = 4  # values of a channel; with fewer of them, any factor fits


def cause(weight: Weight, right: Any, wrong: Any) -> str:
    """The cause as a clause; "" when it is not known.

    right: the values of the reference. wrong: which values are beyond their step.
    """
    return cause_of_all(weight, right) or _by_channel(weight, right, wrong)


def cause_of_all(weight: Weight, right: Any) -> str:
    """The same where one shift or one factor explains all values."""
    return _shifted(weight, right) or _scaled(weight, right)


def _explains(weight: Weight, expected: Any) -> bool:
    """Whether nearly all values are at most a step from these."""
    low, high = np.minimum(weight.low, weight.high), np.maximum(weight.low, weight.high)
    away = np.abs(weight.values - np.clip(expected, low, high))
    return bool(np.mean(away <= weight.step * 1.01 + NEAR * 0.1 * np.abs(expected)) >= SHARE)


def _shifted(weight: Weight, right: Any) -> str:
    """The same number of steps at every value: the zero point is another one."""
    shift = _shift(weight.values, right, weight.step) if weight.place != BIAS else 0
    return f"its zero point is {_too(shift)}" if shift else ""


def _shift(own: Any, right: Any, step: Any) -> int:
    """The number of steps by which all values lie beside the reference's; 0 when it is not the same one."""
    steps = (own - right) / np.where(step > 0, step, np.inf)
    shift = int(np.rint(np.median(steps)))
    return shift if abs(shift) <= LARGEST_SHIFT and np.mean(np.abs(steps - shift) <= 0.51) >= SHARE else 0


def _too(shift: int) -> str:
    return f"{abs(shift)} too {'small' if shift > 0 else 'large'}"


def _scaled(weight: Weight, right: Any) -> str:
    """One factor at every value."""
    factor = _factor(weight.values, right)
    if abs(factor - 1.0) <= NEAR or not _explains(weight, factor * right):
        return ""
    return "all values are 0" if not weight.values.any() else f"all of its values are × {factor:.3g}"


def _factor(mine: Any, right: Any) -> float:
    """The number that takes the reference's values nearest to these."""
    power = float(np.vdot(right, right))
    return float(np.vdot(mine, right)) / power if power else 1.0


def _axis(weight: Weight) -> int:
    """The axis of the channels: that along which the scale varies, or else that of the layer's outputs."""
    rank = weight.values.ndim
    step = np.asarray(weight.step)
    varying = [axis for axis in range(step.ndim) if step.shape[axis] > 1 and np.ptp(step, axis=axis).any()]
    if len(varying) == 1:
        return varying[0] + rank - step.ndim
    matrix = FAMILIES.get(weight.layer.op) == "matmul" and weight.place == 1 and not weight.layer.get("transB", 0)
    return rank - 1 if matrix else 0


def _by_channel(weight: Weight, right: Any, wrong: Any) -> str:
    """A cause that is another one for each channel."""
    if not weight.values.ndim or weight.values.shape[_axis(weight)] < 2:
        return ""
    axis = _axis(weight)
    own, theirs, bad = (
        np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in (weight.values, right, wrong)
    )
    power = np.square(theirs).sum(1)
    factors = np.where(power > 0, (own * theirs).sum(1) / np.where(power > 0, power, 1.0), 1.0)
    steps = np.moveaxis(np.broadcast_to(weight.step, right.shape), axis, 0).reshape(own.shape)
    channels = np.flatnonzero(bad.any(1))
    fits = np.abs(own - factors[:, None] * theirs) <= steps * 1.01
    if np.mean(fits[channels]) >= SHARE and np.any(np.abs(factors - 1.0) > NEAR):
        return _factors(steps[:, 0], factors, channels, own.shape[1])
    shifts = {int(channel): _shift(own[channel], theirs[channel], steps[channel]) for channel in channels[:SHIFTED]}
    if own.shape[1] >= FEW and all(shifts.values()) and weight.place != BIAS:
        return f"the zero point of channel {channels[0]} is {_too(shifts[int(channels[0])])}{_others(channels)}"
    return _other_order(own, theirs, steps, channels)


def _factors(scales: Any, factors: Any, channels: Any, size: int) -> str:
    """A factor for each channel, of this many values: exchanged scales, or the worst one."""
    if np.ptp(scales) > 0 and _exchanged(scales, factors):
        return "the scales belong to other channels"
    if size < FEW:
        return ""
    worst = max(channels, key=lambda channel: np.inf if factors[channel] <= 0 else abs(np.log(factors[channel])))
    return f"the values of channel {worst} are × {factors[worst]:.3g}{_others(channels)}"


def _others(channels: Any) -> str:
    return f", and those of {len(channels) - 1} other channels are wrong, too" if len(channels) > 1 else ""


def _exchanged(scales: Any, factors: Any) -> bool:
    """Whether the scales that the values need are these, in another order."""
    if (factors <= 0).any():
        return False
    needed = scales / factors
    return bool(np.all(np.abs(np.sort(needed) / np.sort(scales) - 1.0) <= NEAR))


def _other_order(own: Any, theirs: Any, steps: Any, channels: Any) -> str:
    """Whether wrong channels hold the values of other channels of the reference."""
    if own.shape[1] < FEW or len(channels) < 2 or len(channels) > 4096:
        return ""
    sizes = np.linalg.norm(own[channels], axis=1)[:, None] * np.linalg.norm(theirs, axis=1)
    alike = np.abs(own[channels] @ theirs.T) / np.where(sizes > 0, sizes, 1.0)
    nearest = np.argmax(alike, axis=1)
    fits = np.abs(own[channels] - theirs[nearest]) <= 2 * steps[channels]
    if np.mean(fits) < SHARE or (nearest == channels).any():
        return ""
    return f"channel {channels[0]} has the values of the reference's channel {nearest[0]}"
