"""The rounding of results, by random relative perturbations of float64 tensors.

This is the random rounding of Monte Carlo arithmetic (Parker, 1997): a result that the precision holds exactly stays as it is, so
that differences of equal numbers, comparisons of whole numbers and masks carry no noise. Infinities, and values beyond the range
of float32, stay as they are, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache, partial

import torch
from torch import Tensor

from ..verdict.limits import UNIT, growth

SIGNIFICAND = 53  # bits of float64
MOST_BITS = (
    24  # more than these cannot be told from a rounded result of float64, so float64's own exact results have as many
)
LARGEST = float(torch.finfo(torch.float32).max)
# Given values of this size are masks. All else is lost in a sum with them, and a part of them would be larger than any other value.
HUGE = 2.0**100
WHOLE = 2.0**MOST_BITS  # the largest of the numbers below which float32 has every whole number
MOST_SETTLED = (
    1024.0  # the largest whole number that ``settled`` finds; the next float32 is far nearer than the next one
)
FEW_ROUNDINGS = 8.0  # unit roundoffs by which a few operations may miss a whole number
SAMPLE = 1024  # values that are looked at first, at regular distances
PART = 2**20  # values that are perturbed at once
ONE = torch.ones((), dtype=torch.float64)

Kept = Callable[[Tensor], Tensor | None]  # of float64 values -> which of them stay as they are; None: none of them


def bits_of(unit: float) -> int:
    """The number of bits of a significand with this unit roundoff, up to MOST_BITS."""
    return min(MOST_BITS, round(-math.log2(unit)))


def _fits(values: Tensor, bits: int) -> Tensor:
    """Which float64 values have a significand of so many bits."""
    return (values.view(torch.int64) & ((1 << (SIGNIFICAND - bits)) - 1)) == 0


def held(values: Tensor, unit: float = UNIT) -> Tensor:
    """Which float64 values a precision holds exactly, or does not hold at all, as those beyond float32's range.

    values: a contiguous tensor. unit: unit roundoff of the precision.
    """
    found = _fits(values, bits_of(unit))
    beyond = _beyond(values, LARGEST)
    return found if beyond is None else found | beyond


def _beyond(values: Tensor, largest: float) -> Tensor | None:
    """Which values are larger than this or NaN; None when none of them is."""
    if not values.numel():
        return None
    low, high = values.aminmax()
    return None if -largest <= float(low) and float(high) <= largest else ~(values.abs() <= largest)


def chosen(values: Tensor, unit: float = UNIT) -> Tensor:
    """Which given float64 values are no results of rounding: whole numbers, fractions of half the precision's bits, and masks.

    values, unit: as for ``held``.
    """
    sizes = values.abs()
    whole = (values.round() == values) & (sizes <= WHOLE)
    return whole | _fits(values, bits_of(unit) // 2) | ~(sizes <= HUGE)


def settled(values: Tensor, unit: float = UNIT, roundings: float = FEW_ROUNDINGS) -> Tensor:
    """Float64 values of which digits are cut off, where those that are whole numbers but for rounding are these numbers.

    Code that computes a table of buckets cuts off the quotient of two logarithms, and rounding moves it to either side of a whole
    number. unit: unit roundoff of the precision of the code. roundings: how many of them a value may be away; 0.5 for exact
    values, of which the precision holds the nearest number.
    """
    whole = values.round()
    sizes = whole.abs()
    near = ((values - whole).abs() <= roundings * unit * sizes) & (sizes <= MOST_SETTLED)
    return torch.where(near, whole, values)


def has_no_memory(tensor: Tensor) -> bool:
    """Whether a tensor has no memory: one of the device meta, or the zero that forward-mode derivatives have for a constant."""
    return tensor.is_meta or tensor._is_zerotensor()


def sums_exactly(tensors: Sequence[Tensor], terms: int, unit: float = UNIT) -> bool:
    """Whether sums of products of these tensors' values are exact in whatever order they are added up.

    That a sum is held exactly does not say so: its parts may have been rounded.

    terms: number of terms of each sum.
    """
    bits = math.log2(max(1, terms))
    for tensor in tensors:
        if bits <= bits_of(unit):
            bits += _range_bits(tensor, bits_of(unit))
    return bits <= bits_of(unit)


def _range_bits(tensor: Tensor, most: int) -> float:
    """The bits of the whole numbers that a tensor's values are multiples of one step by; infinity when there are more than most."""
    if has_no_memory(tensor):
        return math.inf
    values = tensor.detach().reshape(-1)
    if _bits_of_values(values[:: 1 + values.numel() // SAMPLE]) > most:
        return math.inf
    return _bits_of_values(values)


def _bits_of_values(values: Tensor) -> float:
    """The bits of the whole numbers that values are multiples of one step by; infinity where one is not finite."""
    values = values[values != 0].double()
    if not values.numel():
        return 0.0
    if not bool(values.isfinite().all()):
        return math.inf
    mantissas, exponents = torch.frexp(values.abs())
    whole = (mantissas * 2.0**SIGNIFICAND).long()
    steps = torch.log2((whole & -whole).double()) + exponents - SIGNIFICAND
    return float(exponents.max()) - float(steps.min())


@lru_cache(maxsize=8)  # as many as an evaluation has samples
def _drawn(seed: int) -> tuple[Tensor, Tensor]:
    """Numbers that are uniform in ±1, which nobody changes, and the state of the random generator behind them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.inference_mode(False):  # they are also used outside of the mode in which they happen to be drawn
        pool = torch.empty(2 * PART, dtype=torch.float64).uniform_(-1.0, 1.0, generator=generator)
    return pool, generator.get_state()


def _parts(flat: Tensor) -> Sequence[Tensor]:
    return (flat,) if flat.numel() <= PART else flat.split(PART)


class Noise:
    """Relative perturbations, uniform in ±size.

    seed: seed of the random generator.
    unit: the usual size, which is the unit roundoff of the precision whose rounding is modelled.
    """

    def __init__(self, seed: int, unit: float = UNIT) -> None:
        self.unit = unit
        self.pool, state = _drawn(seed)
        self.generator = torch.Generator()
        self.generator.set_state(state)

    def of(self, unit: float) -> Noise:
        """The noise of another precision, from the same source."""
        other = copy(self)
        other.unit = unit
        return other

    def rounding(self, terms: int = 1) -> float:
        """The size of the rounding of a sum of this number of terms."""
        return self.unit * growth(terms, self.unit)

    def factor(self, index: int, size: float) -> float:
        """The factor by which the constant of this index is perturbed; the same at every call."""
        return 1 + size * float(self.pool[index])

    def constant(self, value: float, index: int, size: float) -> float:
        """A constant of the code perturbed by its factor, except for one that is no result of rounding (see ``chosen``)."""
        kept = bool(chosen(torch.tensor([value], dtype=torch.float64), self.unit))
        return value if kept else value * self.factor(index, size)

    def perturb_(self, tensor: Tensor, size: float | None = None) -> Tensor:
        """Perturb every value in place, part by part, each part by another range of the pool.

        Whole numbers stay as they are, and so do tensors without values, on which a library may build a model before it reads
        the weights of it from a file.
        """
        return self._change_(tensor, size, None)

    def perturbed(self, tensor: Tensor, size: float | None = None) -> Tensor:
        """A perturbed copy."""
        return self._copy(tensor, size, None)

    def round_(self, tensor: Tensor, size: float | None = None) -> Tensor:
        """Perturb, in place, the values that the precision does not hold exactly."""
        return self._change_(tensor, size, self._held)

    def rounded(self, tensor: Tensor, size: float | None = None) -> Tensor:
        """A copy in which the values that the precision does not hold exactly are perturbed."""
        return self._copy(tensor, size, self._held)

    def given_(self, tensor: Tensor, size: float | None = None) -> Tensor:
        """Perturb given values in place, except for those that are no results of rounding (see ``chosen``)."""
        return self._change_(tensor, size, self._chosen)

    def given(self, tensor: Tensor, size: float | None = None) -> Tensor:
        """A copy of given values, perturbed like ``given_``."""
        return self._copy(tensor, size, self._chosen)

    def argument(self, tensor: Tensor, size: float | None = None) -> Tensor:
        """A perturbed copy of what an operation adds up. Masks stay as they are: a part of one is larger than any other value."""
        return self._copy(tensor, size, partial(_beyond, largest=HUGE))

    def _held(self, values: Tensor) -> Tensor:
        return held(values, self.unit)

    def _chosen(self, values: Tensor) -> Tensor:
        return chosen(values, self.unit)

    def _copy(self, tensor: Tensor, size: float | None, kept: Kept | None) -> Tensor:
        if tensor.requires_grad and torch.is_grad_enabled() and tensor.dtype == torch.float64:
            source = tensor.detach().contiguous()
            return tensor * self._change_(torch.ones_like(source), size, kept, source)
        if tensor.dtype == torch.float64 and 0 < tensor.numel() <= PART and not has_no_memory(tensor):
            whole = tensor.contiguous()  # what is new then is written once
            return whole * self._factors(whole.view(-1), size, kept).view(whole.shape)
        return self._change_(tensor.clone(memory_format=torch.contiguous_format), size, kept)

    def _change_(self, tensor: Tensor, size: float | None, kept: Kept | None, values: Tensor | None = None) -> Tensor:
        """Multiply a tensor by random factors, in place. kept: which values are multiplied by 1. values: instead of its own."""
        if not tensor.is_floating_point() or has_no_memory(tensor) or not tensor.numel():
            return tensor
        if kept is not None and tensor.dtype != torch.float64:
            return tensor
        flat = tensor.view(-1) if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))
        sources = flat if values is None else values.view(-1)
        for part, source in zip(_parts(flat), _parts(sources)):
            part.mul_(self._factors(source, size, kept))
        return tensor

    def _factors(self, values: Tensor, size: float | None, kept: Kept | None) -> Tensor:
        """The factors of at most PART values in one axis; see ``_change_``.

        A factor keeps infinities: an added part of one would be NaN where the signs differ.
        """
        start = int(torch.randint(PART, (1,), generator=self.generator))
        drawn = self.pool[start : start + values.numel()]
        factors = torch.add(ONE, drawn, alpha=self.unit if size is None else size)
        stays = kept(values) if kept is not None else None
        return factors if stays is None else factors.masked_fill_(stays, 1.0)


# -- softmax ----------------------------------------------------------------------------------------------------------


def rounded_softmax(x: Tensor, axis: int, noise: Noise, size: float | None = None) -> Tensor:
    """softmax with the rounding of its differences from the largest value, of its exponentials, of their sum and of the quotient.

    A relative change of its arguments would be far larger where these are masks.

    size: relative rounding of the sum; None: by the number of its terms.
    """
    _, exponentials, total = _exponentials(x, [axis], noise, size)
    return noise.round_(exponentials / total)


def rounded_log_softmax(x: Tensor, axis: int, noise: Noise, size: float | None = None) -> Tensor:
    """log_softmax, like ``rounded_softmax``."""
    differences, _, total = _exponentials(x, [axis], noise, size)
    return noise.round_(differences - noise.round_(total.log()))


def rounded_logsumexp(x: Tensor, axes: Sequence[int], keep: bool, noise: Noise) -> Tensor:
    """logsumexp over several axes, like ``rounded_softmax``. keep: whether the axes stay, with one value each."""
    top = x.amax(axes, keepdim=True)
    top = torch.where(top.isfinite(), top, 0.0)
    _, _, total = _exponentials(x - top, axes, noise, None)
    found = noise.round_(noise.round_(total.log()) + top)
    return found if keep else found.squeeze(list(axes))


def _exponentials(x: Tensor, axes: Sequence[int], noise: Noise, size: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """The differences from the largest value of each row, their exponentials, and the sum of these, each rounded."""
    differences = noise.round_(x - x.amax(axes, keepdim=True))
    exponentials = noise.round_(differences.exp())
    size = noise.rounding(math.prod(x.shape[axis] for axis in axes)) if size is None else size
    return differences, exponentials, noise.round_(exponentials.sum(axes, keepdim=True), size)
