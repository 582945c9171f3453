"""Describes a difference by its pattern, where no known fault reproduces it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..verdict.findings import Explanation
from ..verdict.limits import UNIT

LEAST_SCALE = 1.005  # dropout makes the values that it keeps larger; an activation such as ReLU keeps them as they are
DROPPED_SLACK = (
    0.1  # of scale · (1 − p) around 1, beside the variation of a random share: whole channels may be dropped
)
INDEPENDENCE_SLACK = 0.25  # least difference that counts between two shares of kept values; a ReLU has 1
DEVIATIONS = 3.0  # standard deviations by which a random share may vary
ENOUGH_VALUES = 4  # least number of values for a share

# Whether the captured tensor agrees with another exact one to within the noise.
Fits = Callable[[Tensor], bool]


def describe(captured: Tensor, exact: Tensor, fits: Fits, channels: int) -> Explanation | None:
    """Explain the difference of two tensors by its pattern: zeros, a factor, few channels, another order, or a shift.

    A pattern counts only where nothing but noise remains when it is applied to the exact tensor.

    channels: the axis of the channels.
    """
    if captured.shape != exact.shape or not exact.is_floating_point():
        return None
    size = float(exact.flatten().square().sum())
    if not size or not math.isfinite(size) or not bool(torch.isfinite(captured.double()).all()):
        return None
    patterns: tuple[Callable[[Tensor, Tensor, Fits], Explanation | None], ...]
    patterns = (_dropped, _scaled, partial(_few_channels, channels=channels), _reordered, _shifted)
    return next((found for pattern in patterns if (found := pattern(captured, exact, fits)) is not None), None)


def _dropped(captured: Tensor, exact: Tensor, fits: Fits) -> Explanation | None:
    """Recognise dropout: zeros in random places, and all other values divided by the share of those that are kept.

    An activation makes zeros as well, but it leaves the other values as they are, and its zeros depend on the values.
    """
    y, x = captured.double(), exact
    kept = y != 0
    share = 1 - float(kept.double().mean())
    if not 0.01 < share < 0.99:
        return None
    scale = float((y * x)[kept].sum()) / float(x[kept].square().sum() or 1.0)
    slack = DROPPED_SLACK + DEVIATIONS * math.sqrt(share / (1 - share) / kept.numel())
    if scale < LEAST_SCALE or abs(scale * (1 - share) - 1) > slack or not _is_independent(kept, x, share):
        return None
    if not fits(torch.where(kept, scale * x, 0.0)):
        return None
    says = f"{share:.0%} of its values are zero, at random, and the others {scale:.3g} times as large: dropout is on"
    return Explanation("dropout left on", says)


def _is_independent(kept: Tensor, x: Tensor, share: float) -> bool:
    """Whether positive and negative values, and small and large ones, are kept about equally often.

    share: the share of values that are not kept.
    """
    for part in (x > 0, x.abs() > x.abs().median()):
        counts = [int(part.sum()), int((~part).sum())]
        if min(counts) < ENOUGH_VALUES:
            continue
        deviation = math.sqrt(share * (1 - share) * sum(1 / count for count in counts))
        apart = abs(float(kept[part].double().mean()) - float(kept[~part].double().mean()))
        if apart > max(INDEPENDENCE_SLACK, min(DEVIATIONS * deviation, 0.9)):
            return False
    return True


def _scaled(captured: Tensor, exact: Tensor, fits: Fits) -> Explanation | None:
    """Recognise a single factor that explains the difference."""
    y, x = captured.double().flatten(), exact.flatten()
    scale = float(y.dot(x)) / float(x.square().sum())
    if abs(scale - 1) > 80 * UNIT and fits(scale * exact):
        return Explanation("scaled", f"its result is {scale:.7g} times the reference's")
    return None


def _few_channels(captured: Tensor, exact: Tensor, fits: Fits, channels: int) -> Explanation | None:
    """Recognise a difference in one or in few channels or positions. Axis 0, the items of a batch, is not searched."""
    for axis in range(1, exact.dim()):
        if exact.shape[axis] < 3:
            continue
        squares = (captured.double() - exact).square()
        by_channel = squares.sum([other for other in range(exact.dim()) if other != axis])
        most = int(by_channel.argmax())
        if float(by_channel[most]) > 0.999 * float(by_channel.sum()) and fits(
            _with_channel(exact, captured, axis, most)
        ):
            if axis != channels % exact.dim():
                return Explanation("some channels", f"only its position {most} along axis {axis} differs")
            says = f"only its channel {most} (axis {axis}) differs: a wrong value in that channel's weights"
            return Explanation("one stale weight", says)
        if bool((by_channel > 1e-3 * by_channel[most]).sum() * 4 <= exact.shape[axis]):
            if axis != channels % exact.dim():
                return Explanation("some channels", f"few of its positions along axis {axis} differ, {most} most")
            return Explanation("some channels", f"few of its channels differ (axis {axis}), channel {most} most")
    return None


def _with_channel(exact: Tensor, captured: Tensor, axis: int, channel: int) -> Tensor:
    """The exact tensor with one channel of the captured one."""
    found = exact.clone()
    found.select(axis, channel).copy_(captured.select(axis, channel))
    return found


def _reordered(captured: Tensor, exact: Tensor, _: Fits) -> Explanation | None:
    """Recognise the same values in another order."""
    y, x = captured.double().flatten(), exact.flatten()
    if torch.equal(y.sort().values.float(), x.sort().values.float()):
        return Explanation("reordered", "its result has the reference's values in another order")
    return None


def _shifted(captured: Tensor, exact: Tensor, fits: Fits) -> Explanation | None:
    """Recognise values that are all shifted by one place along an axis."""
    for axis in range(1, exact.dim()):
        for shift in (1, -1):
            rolled = exact.roll(shift, axis)
            if not torch.equal(rolled, exact) and fits(rolled):
                return Explanation("shifted", f"its result is shifted by {shift} along axis {axis}")
    return None
