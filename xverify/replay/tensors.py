"""Compares a captured tensor with its exact value, and divides the difference by the noise floor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..float64.precision import SMALLEST
from ..float64.structures import as_float32, as_float64
from ..framework.capture import LayerCall
from ..results.verdicts import Verdict
from ..verdict import limits
from ..verdict.findings import Finding
from ..verdict.limits import UNIT
from ..verdict.local import Local, enough, local_of
from ..weights.canonical import Array

PART = 2**18  # values of a tensor that are compared at once
MAPPED = 2**20  # bytes; a larger file may be mapped
# The rms of the noise at some values of a tensor: (their places in the flat tensor, the exact values there) -> rms of each.
NoiseOf = Callable[[Array, Array], Array]


@dataclass
class Capture:
    """The capture of a framework. Arrays are read when they are needed.

    folder: the folder of the files.
    channels_last: whether the framework keeps images as N,H,W,C.
    records: (layer, call) -> the names of its files.
    mapped: whether large arrays are mapped into memory instead of being read.
    watched: the layers whose calls would have been captured.
    """

    folder: Path = Path()
    channels_last: bool = False
    records: Mapping[tuple[str, int], LayerCall] = field(default_factory=dict)
    mapped: bool = False
    watched: frozenset[str] = frozenset()

    def load(self, file: str) -> Tensor:
        """The array of this file."""
        path = self.folder / file
        return torch.from_numpy(np.load(path, mmap_mode="c" if self.mapped and path.stat().st_size > MAPPED else None))

    def load_all(self, files: Iterable[str]) -> list[Tensor]:
        """The arrays of these files."""
        return [self.load(file) for file in files]


@dataclass
class Floors:
    """The exact value of one tensor, and its noise floor in two parts, each mean squares by channel, (C,).

    exact: the value in float64.
    perturbation: change of the exact value under perturbation; None for an operation that only copies.
    float32_error: error of the reference in float32; None for an operation that only copies, and where it was not measured.
    sizes: mean squares of the exact value itself, where they are known.
    unit: unit roundoff of the precision in which the framework computed the tensor.
    noise: the noise of each value by the perturbation, and by the error in float32; a part that is None has the same noise in all
        values of a channel.
    again: measures the floor once more with more samples, for a tensor that is beyond a limit; None where that is not possible.
    undecided: of whole numbers, such as the best class, tells which ones rounding may change; None where none can change.
    """

    exact: Tensor
    perturbation: Array | None
    float32_error: Array | None
    sizes: Array | None = None
    unit: float = field(default=UNIT, kw_only=True)
    noise: tuple[NoiseOf | None, NoiseOf | None] = field(default=(None, None), kw_only=True)
    again: Callable[[], Floors] | None = field(default=None, kw_only=True)
    undecided: Callable[[], Tensor] | None = field(default=None, kw_only=True)

    @classmethod
    def between(
        cls, exact: Tensor, perturbed: Tensor | None, float32: Tensor | None, axis: int, unit: float = UNIT
    ) -> Floors:
        """The floor of a tensor that was computed exactly, with perturbations, and in float32. axis: axis of the channels."""
        parts = [each if each is None or each.is_floating_point() else None for each in (perturbed, float32)]
        squares = [None if each is None else mean_squares(each, axis, exact=exact) for each in parts]
        noise = [None if each is None else change_of(each) for each in parts]
        return cls(exact, *squares, unit=unit, noise=(noise[0], noise[1]))

    def rms(self) -> float:
        """The noise floor of the whole tensor: F of ``limits.ratio``, without the growth by the length of the sums."""
        parts = (self.perturbation, self.float32_error)
        perturbation, error = (0.0 if squares is None else float(squares.mean()) for squares in parts)
        return math.sqrt(perturbation + error + self.unit**2 / 3 * rms(self.exact) ** 2)

    def of(self, exact: Tensor) -> Floors:
        """The same noise floor for another exact value."""
        same = exact.shape == self.exact.shape
        return Floors(
            exact, self.perturbation, self.float32_error, unit=self.unit, noise=self.noise if same else (None, None)
        )

    def sampled(self, squares: Tensor, axis: int) -> Floors:
        """The same with another noise by the perturbation: these mean squares of several samples, of each value."""
        noise = squares.sqrt()
        return replace(
            self, perturbation=mean_squares(noise, axis), noise=(known_noise(noise), self.noise[1]), again=None
        )

    def at(self, places: Array, values: Array, terms: int, axis: int) -> Array:
        """The rms of the noise at some values: √(κ²·(d² + (u·y)²/3) + e32²). Arguments: see ``NoiseOf`` and ``judge``."""
        kappa = 1.0 if self.perturbation is None else limits.growth(terms, self.unit)
        shape = tuple(self.exact.shape)
        squares = (self.perturbation, self.float32_error)
        perturbed, error = (
            each(places, values) if each else _by_channel(square, places, shape, axis)
            for each, square in zip(self.noise, squares)
        )
        with np.errstate(invalid="ignore", over="ignore"):
            found: Array = np.hypot(kappa * np.hypot(perturbed, self.unit / math.sqrt(3) * values), error)
        return found


def change_of(tensor: Tensor) -> NoiseOf:
    """The noise that one sample shows: its difference from the exact values."""
    flat = tensor.detach().reshape(-1)

    def noise(places: Array, values: Array) -> Array:
        with np.errstate(invalid="ignore"):
            found: Array = np.abs(_taken(flat, places) - values)
        return found

    return noise


def known_noise(rms_of_each: Tensor) -> NoiseOf:
    """The noise whose rms is known for every value."""
    flat = rms_of_each.detach().reshape(-1)
    return lambda places, _: _taken(flat, places)


def _taken(flat: Tensor, places: Array) -> Array:
    """Some values of a flat tensor, which are at regular distances, in float64."""
    step = int(places[1] - places[0]) if places.size > 1 else 1
    found: Array = flat[int(places[0]) : int(places[-1]) + 1 : step].double().numpy()
    return found


def _by_channel(squares: Array | None, places: Array, shape: tuple[int, ...], axis: int) -> Array | float:
    """The rms of the channel of each value. squares: mean squares by channel, or one for all channels."""
    if squares is None:
        return 0.0
    if len(squares) == 1 or not shape:
        return math.sqrt(float(squares.mean()))
    found: Array = np.sqrt(squares)[places // math.prod(shape[axis + 1 :] if axis != -1 else ()) % len(squares)]
    return found


@dataclass(frozen=True)
class Place:
    """The tensor that is compared. The fields are those of a Finding."""

    layer: str
    call: int
    index: int
    kind: str
    what: str

    @classmethod
    def of(cls, finding: Finding) -> Place:
        """The place of a finding."""
        return cls(finding.layer, finding.call, finding.index, finding.kind, finding.what)

    def identical(self, terms: int = 1, reason: str | None = None) -> Finding:
        """The finding that there is no difference. reason: why the tensor is wrong nevertheless; None when it is right."""
        return Finding(self.layer, self.call, self.index, self.kind, self.what, 0.0, 0.0, terms, 0.0, 0.0, 0.0, reason)

    def incomparable(self, reason: str, terms: int = 1) -> Finding:
        """The finding that the difference cannot be measured."""
        return Finding(
            self.layer, self.call, self.index, self.kind, self.what, math.inf, math.inf, terms, reason=reason
        )


def rms(tensor: Tensor) -> float:
    """Root of the mean square of the finite values."""
    values = tensor.double()
    norm = float(torch.linalg.vector_norm(values))
    if not math.isfinite(norm):
        values = values[torch.isfinite(values)]
        norm = float(torch.linalg.vector_norm(values))
    return norm / math.sqrt(max(1, values.numel()))


# -- judging ----------------------------------------------------------------------------------------------------------


def judge(place: Place, captured: Tensor, floors: Floors, terms: int, axis: int) -> Finding:
    """Compare a captured tensor with its exact value, of the same shape.

    terms: length of the sums behind one value.
    axis: axis of the channels.
    """
    exact = floors.exact
    if not exact.is_floating_point() or equal(exact, captured):
        wrong, share = exact.to(captured.dtype) != captured, 0.0
        if floors.undecided is not None and bool(wrong.any()):
            undecided = floors.undecided()
            wrong, share = wrong & ~undecided, float(undecided.double().mean())
        count = int(wrong.sum())
        differing = f"{count} of {captured.numel()} whole numbers differ" if count else None
        return replace(place.identical(terms, differing), undetermined=share)
    finding = _judge(place, captured, floors, terms, axis)
    if finding.verdict == Verdict.EQUAL or finding.ratio > limits.DRIFT_R or floors.again is None:
        return finding
    return _judge(place, captured, floors.again(), terms, axis)


def _judge(place: Place, captured: Tensor, floors: Floors, terms: int, axis: int) -> Finding:
    exact = floors.exact
    squares, mean, largest = _differences(captured, exact, axis)
    if not math.isfinite(mean):
        return _judge_finite_part(place, captured, floors, terms, axis)
    sizes = mean_squares(exact, axis) if floors.sizes is None else floors.sizes
    ratio = limits.ratio(squares, floors.perturbation, floors.float32_error, sizes, terms, floors.unit)
    groups = _in_groups(captured, floors, terms, axis)
    size, error = math.sqrt(float(sizes.mean())), math.sqrt(float(squares.mean()))
    relative = error / size if size else error
    return Finding(
        place.layer, place.call, place.index, place.kind, place.what, ratio, groups.ratio, terms, mean, largest, relative,
        floor_share=groups.floor_share, worst_share=groups.worst_share, undetermined=groups.undetermined_share,
        unit=floors.unit, index_share=groups.shown.share or 0.0, value_share=groups.shown.value_share or 0.0,
    )  # fmt: skip


def _in_groups(captured: Tensor, floors: Floors, terms: int, axis: int) -> Local:
    """The ratio of the worst group of values."""
    flat, least = captured.detach().reshape(-1), SMALLEST.get(captured.dtype, 0.0)

    def compared(places: Array, values: Array) -> tuple[Array, Array]:
        noise = floors.at(places, values, terms, axis)
        with np.errstate(invalid="ignore"):
            return _taken(flat, places) - values, np.where(noise == 0, 0.0, np.hypot(noise, least))

    exact, channels = floors.exact.detach().numpy(), axis % max(1, captured.dim())
    cap, most = limits.cap(floors.unit), enough(exact.shape)
    return local_of(exact, compared, most=most, axis=channels, cap=cap, whole_limit=limits.EQUAL_R)


def _differences(captured: Tensor, exact: Tensor, axis: int) -> tuple[Array, float, float]:
    """Mean squares of the difference by channel, (C,), and its mean and largest absolute value."""
    sums, mean, largest = [], 0.0, 0.0
    for part, exact_part in stretches(captured, exact, axis=axis):
        residual = part - exact_part
        sums.append(_square_norms(residual, axis))
        residual.abs_()  # sums and maxima of it are several times as fast as torch's norms of order 1 and infinity
        mean += float(residual.sum()) / captured.numel()
        largest = max(largest, float(residual.amax()))
    squares: Array = np.sum(sums, axis=0) * len(sums[0]) / max(1, captured.numel())
    return squares, mean, largest


def _judge_finite_part(place: Place, captured: Tensor, floors: Floors, terms: int, axis: int) -> Finding:
    """Judge the finite values, when NaN and infinities are in the same places in both tensors."""
    exact = floors.exact
    finite = torch.isfinite(captured - exact)
    same = (exact.isnan() & captured.isnan()) | (exact.float() == captured)
    if not bool((finite | same).all()):
        reason = f"{place.what} has {_not_finite(captured)}, the reference {_not_finite(exact)}"
        return place.incomparable(reason, terms)
    captured, exact = (torch.where(finite, tensor, 0.0) for tensor in (captured, exact))
    return judge(place, captured, floors.of(exact), terms, axis)


def _not_finite(tensor: Tensor) -> str:
    return f"{int(tensor.isnan().sum())} NaN and {int(tensor.isinf().sum())} infinite values"


def equal(reference: Tensor, captured: Tensor) -> bool:
    """Whether the reference's tensor, rounded to float32 where it is in float64, is the captured one to the bit."""
    pairs = stretches(reference, captured, axis=-1)
    return _alike(reference, captured) and all(torch.equal(as_float32(a), b) for a, b in pairs)


def same_in_float64(reference: Tensor, captured: Tensor) -> bool:
    """Whether the reference's tensor in float64 has the captured values, also where float32 could not tell them apart."""
    if not reference.is_floating_point() or not _alike(reference, captured):
        return False
    return all(torch.equal(a, as_float64(b)) for a, b in stretches(reference, captured, axis=-1))


def _alike(reference: Tensor, captured: Tensor) -> bool:
    """Whether two tensors have one shape, and the dtype that the reference's has when float64 is rounded to float32."""
    dtype = as_float32(reference[:0] if reference.dim() else reference).dtype
    return dtype == captured.dtype and reference.shape == captured.shape


# -- sums by channel --------------------------------------------------------------------------------------------------


def stretches(*tensors: Tensor, axis: int) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors of one shape into parts of PART values or one item, so that temporary results stay in the processor's cache.

    axis: axis of the channels; every part has all channels.
    """
    first = tensors[0]
    if axis == 0 or first.dim() == 0 or first.numel() <= PART:
        yield tensors
    else:
        items = max(1, PART * first.shape[0] // first.numel())
        yield from zip(*(tensor.split(items) for tensor in tensors))


def mean_squares(tensor: Tensor, axis: int, exact: Tensor | None = None) -> Array:
    """Mean squares by channel, (C,); values that are not finite count as zero.

    axis: axis of the channels.
    exact: a tensor; when given, the mean squares are those of the difference from it.
    """
    pairs = stretches(*((tensor,) if exact is None else (tensor, exact)), axis=axis)
    found = []
    for part, *exact_part in pairs:
        values = part - exact_part[0] if exact_part else part
        squares = _square_norms(values, axis)
        if not np.isfinite(squares).all():
            squares = _square_norms(values.nan_to_num(0.0, 0.0, 0.0), axis)
        found.append(squares)
    total: Array = np.sum(found, axis=0)
    return total * len(total) / max(1, tensor.numel())


def _square_norms(values: Tensor, axis: int) -> Array:
    """Sums of squares by channel, (C,)."""
    if not values.is_floating_point():
        values = values.double()
    others = [other for other in range(values.dim()) if other != axis]
    norms = torch.linalg.vector_norm(values, dim=others) if others else values.abs()
    found: Array = np.atleast_1d(norms.double().square().numpy())
    return found
