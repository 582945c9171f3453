"""Describes a difference by its pattern, where no known fault reproduces it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..verdict.findings import Explanation
from ..verdict.limits import UNIT


def describe(captured: Tensor, exact: Tensor) -> Explanation | None:
    """Explain the difference of two tensors by its pattern: zeros, a factor, few channels, another order, or a shift."""
    if captured.shape != exact.shape or not exact.is_floating_point():
        return None
    size = float(exact.flatten().square().sum())
    if not size or not math.isfinite(size) or not bool(torch.isfinite(captured.double()).all()):
        return None
    patterns: tuple[Callable[[Tensor, Tensor, float], Explanation | None], ...]
    patterns = (_dropped, _scaled, _few_channels, _reordered, _shifted)
    return next((found for pattern in patterns if (found := pattern(captured, exact, size)) is not None), None)


def _dropped(captured: Tensor, exact: Tensor, size: float) -> Explanation | None:
    """Recognise many zeros beside values that are all scaled by one factor."""
    y, x = captured.double().flatten(), exact.flatten()
    zeros = (y == 0) & (x != 0)
    share = float(zeros.double().mean())
    if not 0.01 < share < 0.99:
        return None
    scale = float(y.dot(x)) / float(x[~zeros].square().sum() or 1.0)
    if not float((y - scale * x)[~zeros].norm()) < 1e-3 * math.sqrt(size):
        return None
    says = f"{share:.0%} of its values are zero and the others {scale:.3g} times as large: dropout is on"
    return Explanation("dropout left on", says)


def _scaled(captured: Tensor, exact: Tensor, size: float) -> Explanation | None:
    """Recognise a single factor that explains most of the difference."""
    y, x = captured.double().flatten(), exact.flatten()
    scale = float(y.dot(x)) / size
    remaining = float((y - scale * x).norm()) / math.sqrt(size)
    if abs(scale - 1) > 20 * max(remaining, 4 * UNIT):
        return Explanation("scaled", f"its result is {scale:.7g} times the reference's")
    return None


def _few_channels(captured: Tensor, exact: Tensor, _: float) -> Explanation | None:
    """Recognise a difference in one channel or in few channels. Axis 0, the items of a batch, is not searched."""
    for axis in range(1, exact.dim()):
        if exact.shape[axis] < 3:
            continue
        squares = (captured.double() - exact).square()
        by_channel = squares.sum([other for other in range(exact.dim()) if other != axis])
        most = int(by_channel.argmax())
        if float(by_channel[most]) > 0.999 * float(by_channel.sum()):
            says = f"only its channel {most} (axis {axis}) differs: a wrong value in that channel's weights"
            return Explanation("one stale weight", says)
        if bool((by_channel > 1e-3 * by_channel[most]).sum() * 4 <= exact.shape[axis]):
            return Explanation("some channels", f"few of its channels differ (axis {axis}), channel {most} most")
    return None


def _reordered(captured: Tensor, exact: Tensor, _: float) -> Explanation | None:
    """Recognise the same values in another order."""
    y, x = captured.double().flatten(), exact.flatten()
    if torch.equal(y.sort().values.float(), x.sort().values.float()):
        return Explanation("reordered", "its result has the reference's values in another order")
    return None


def _shifted(captured: Tensor, exact: Tensor, size: float) -> Explanation | None:
    """Recognise values that are all shifted by one place along an axis."""
    for axis in range(1, exact.dim()):
        for shift in (1, -1):
            rolled = exact.roll(shift, axis)
            if not torch.equal(rolled, exact) and float((captured.double() - rolled).norm()) < 1e-5 * math.sqrt(size):
                return Explanation("shifted", f"its result is shifted by {shift} along axis {axis}")
    return None
