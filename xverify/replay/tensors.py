"""A captured tensor beside its exact value: which of its layouts it is in, how far it is off, and what that looks like."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..verdict import limits as rule
from ..verdict.findings import Finding
from ..verdict.limits import UNIT
from .stepping import as_float32

# Layers whose channels are torch's axis 1, and the last axis of frameworks that keep images as N,H,W,C.
SPATIAL = (
    nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm, nn.GroupNorm,
    nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd, nn.modules.pooling._AdaptiveAvgPoolNd, nn.Upsample,
    nn.PixelShuffle, nn.Dropout2d,
)  # fmt: skip
PART = 2**18
MAPPED = 2**20  # bytes, from which on a file is mapped


def channel_axis(module: nn.Module | None, dim: int) -> int:
    """The axis that a fault of a single feature would stay in."""
    return min(1, dim - 1) if isinstance(module, SPATIAL) else dim - 1


@dataclass
class Capture:
    """What a framework captured: records by (layer, call); arrays are read when they are needed.

    mapped: they stay in their files, of which the system keeps in memory what it has room for.
    """

    folder: Path = Path()
    channels_last: bool = False
    records: Mapping[tuple[str, int], Mapping[str, Sequence[str]]] = field(default_factory=dict)
    mapped: bool = False

    def load(self, file: str) -> Tensor:
        path = self.folder / file
        return torch.from_numpy(np.load(path, mmap_mode="c" if self.mapped and path.stat().st_size > MAPPED else None))


@dataclass
class Floors:
    """Of one tensor: its exact value, and mean squares by channel, (C,): of its change under rounding, of float32's error.

    None: nothing of the kind; an operation that only copies has neither. sizes: of the exact value itself, where they are known.
    """

    exact: Tensor
    moved: np.ndarray | None
    own: np.ndarray | None
    sizes: np.ndarray | None = None

    def rms(self) -> float:
        """The floor of the whole tensor, F of rule.ratios without further growth."""
        moved, own = (0.0 if squares is None else float(squares.mean()) for squares in (self.moved, self.own))
        return math.sqrt(moved + own + UNIT**2 / 3 * rms(self.exact) ** 2)


def rms(tensor: Tensor) -> float:
    """Of the finite values."""
    values = tensor.double()
    if not bool(torch.isfinite(values).all()):
        values = values[torch.isfinite(values)]
    return float(torch.linalg.vector_norm(values)) / math.sqrt(max(1, values.numel()))


def judge(
    name: str, call: int, index: int, kind: str, what: str, theirs: Tensor, floor: Floors, terms: int, axis: int
) -> Finding:
    """Compare a captured tensor with its exact value. axis: of the channels."""
    exact = floor.exact
    if not exact.is_floating_point() or equal(exact, theirs):
        same = bool((exact.to(theirs.dtype) == theirs).all())
        reason = None if same else f"{int((exact != theirs).sum())} of {theirs.numel()} whole numbers differ"
        return Finding(name, call, index, kind, what, 0.0, 0.0, terms, 0.0, 0.0, 0.0, reason)
    sums, mean, largest = [], 0.0, 0.0
    for part, exactly in stretches(theirs, exact, axis=axis):
        residual = part - exactly
        sums.append(_square_norms(residual, axis))
        mean += float(torch.linalg.vector_norm(residual, 1)) / theirs.numel()
        largest = max(largest, float(torch.linalg.vector_norm(residual, math.inf)))
    if not math.isfinite(mean):
        finite = torch.isfinite(theirs - exact)
        # Equal infinities are equal, and NaN stands where NaN should.
        alike = (exact.isnan() & theirs.isnan()) | (exact.float() == theirs)
        if not bool((finite | alike).all()):
            reason = f"{what} has {_not_finite(theirs)}, the reference {_not_finite(exact)}"
            return Finding(name, call, index, kind, what, math.inf, math.inf, terms, reason=reason)
        theirs, exact = (torch.where(finite, tensor, 0.0) for tensor in (theirs, exact))
        return judge(name, call, index, kind, what, theirs, Floors(exact, floor.moved, floor.own), terms, axis)
    squares = np.sum(sums, axis=0) * len(sums[0]) / max(1, theirs.numel())
    sizes = mean_squares(exact, axis) if floor.sizes is None else floor.sizes
    ratio, channel = rule.ratios(squares, floor.moved, floor.own, sizes, terms)
    size, error = math.sqrt(float(sizes.mean())), math.sqrt(float(squares.mean()))
    relative = error / size if size else error
    return Finding(name, call, index, kind, what, ratio, channel, terms, mean, largest, relative)


def stretches(*tensors: Tensor, axis: int) -> Iterator[tuple[Tensor, ...]]:
    """Stretches of tensors of one shape, of PART values or one item: temporaries of theirs stay in the processor's cache.

    axis: of the channels, of which every stretch has all.
    """
    first = tensors[0]
    if axis == 0 or first.dim() == 0 or first.numel() <= PART:
        yield tensors
    else:
        items = max(1, PART * first.shape[0] // first.numel())
        yield from zip(*(tensor.split(items) for tensor in tensors))


def equal(mine: Tensor, theirs: Tensor) -> bool:
    """Whether a tensor, rounded to float32 if it is wide, is the other to the bit."""
    if as_float32(mine[:0] if mine.dim() else mine).dtype != theirs.dtype or mine.shape != theirs.shape:
        return False
    return all(torch.equal(as_float32(a), b) for a, b in stretches(mine, theirs, axis=-1))


def mean_squares(tensor: Tensor, axis: int, exact: Tensor | None = None) -> np.ndarray:
    """By channel, (C,); of the difference from ``exact``, if given. What is not finite counts as nothing."""
    pairs = stretches(*((tensor,) if exact is None else (tensor, exact)), axis=axis)
    found = []
    for part, *exactly in pairs:
        values = part - exactly[0] if exactly else part
        squares = _square_norms(values, axis)
        if not np.isfinite(squares).all():
            squares = _square_norms(values.nan_to_num(0.0, 0.0, 0.0), axis)
        found.append(squares)
    total: np.ndarray = np.sum(found, axis=0)
    return total * len(total) / max(1, tensor.numel())


def _square_norms(values: Tensor, axis: int) -> np.ndarray:
    """Sums of squares by channel, (C,)."""
    if not values.is_floating_point():
        values = values.double()
    others = [other for other in range(values.dim()) if other != axis]
    norms = torch.linalg.vector_norm(values, dim=others) if others else values.abs()
    found: np.ndarray = np.atleast_1d(norms.double().square().numpy())
    return found


def _not_finite(tensor: Tensor) -> str:
    return f"{int(tensor.isnan().sum())} NaN and {int(tensor.isinf().sum())} infinite values"


def describe(theirs: Tensor, exact: Tensor) -> tuple[str, str] | None:
    """(kind, clause) for a difference that no entry of the catalogue makes, from its form alone."""
    if theirs.shape != exact.shape or not exact.is_floating_point():
        return None
    y, x = theirs.double().flatten(), exact.flatten()
    size = float(x.square().sum())
    if not size or not math.isfinite(size) or not bool(torch.isfinite(y).all()):
        return None
    zeros = (y == 0) & (x != 0)
    share = float(zeros.double().mean())
    if 0.01 < share < 0.99:
        scale = float(y.dot(x)) / float(x[~zeros].square().sum() or 1.0)
        if float((y - scale * x)[~zeros].norm()) < 1e-3 * math.sqrt(size):
            return (
                "dropout left on",
                f"{share:.0%} of its values are zero and the others {scale:.3g} times as large: dropout is on",
            )
    scale = float(y.dot(x)) / size
    rest = float((y - scale * x).norm()) / math.sqrt(size)
    if abs(scale - 1) > 20 * max(rest, 4 * UNIT):
        return "scaled", f"its result is {scale:.7g} times the reference's"
    for axis in range(exact.dim()):
        if exact.shape[axis] < 3:
            continue
        others = [other for other in range(exact.dim()) if other != axis]
        apart = (theirs.double() - exact).square()
        by_place = apart.sum(others) if others else apart
        most = int(by_place.argmax())
        if axis and float(by_place[most]) > 0.999 * float(by_place.sum()):
            return (
                "one stale weight",
                f"only its channel {most} (axis {axis}) differs: a wrong value in that channel's weights",
            )
        if axis and bool((by_place > 1e-3 * by_place[most]).sum() * 4 <= exact.shape[axis]):
            return "some channels", f"few of its channels differ (axis {axis}), channel {most} most"
    if torch.equal(y.sort().values.float(), x.sort().values.float()):
        return "reordered", "its result has the reference's values in another order"
    for axis in range(1, exact.dim()):
        for shift in (1, -1):
            moved = exact.roll(shift, axis)
            if not torch.equal(moved, exact) and float((theirs.double() - moved).norm()) < 1e-5 * math.sqrt(size):
                return "shifted", f"its result is shifted by {shift} along axis {axis}"
    return None


def forms(theirs: Tensor, shape: Sequence[int], layer: nn.Module | None, channels_last: bool) -> list[Tensor]:
    """What a captured tensor may be in the reference's layout; [] when its shape has no place for it.

    channels_last: the framework keeps images as N,H,W,C. Where both layouts fit, as for a square image with as many channels,
    a convolution's can be but one; of a ReLU's both are told.
    """
    shape = tuple(shape)
    same = [theirs] if tuple(theirs.shape) == shape else []
    if channels_last and theirs.dim() in (3, 4, 5):
        turned = theirs.movedim(-1, 1)
        if tuple(turned.shape) == shape:
            return [turned.contiguous()] if isinstance(layer, SPATIAL) else [*same, turned.contiguous()]
    return same


def fit(theirs: Tensor, shape: Sequence[int], layer: nn.Module | None, channels_last: bool) -> Tensor | None:
    """The first of its forms, or None."""
    return next(iter(forms(theirs, shape, layer, channels_last)), None)
