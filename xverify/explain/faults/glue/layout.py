"""Faults of the layout: axes that are split, merged or transposed in another order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from torch import Tensor

from ....replay.operation import Operation
from .arithmetic import ORDINALS
from .operation import Change, first_argument, with_argument

RESHAPES = ("reshape", "view", "flatten", "unflatten", "reshape_as", "view_as", "squeeze", "unsqueeze")
TRANSPOSES = ("transpose", "permute", "T", "mT", "movedim", "swapaxes", "swapdims", "moveaxis")
MOST_FACTORS = 4
ELEMENTWISE = ("add", "sub", "mul", "div", "gt", "ge", "lt", "le", "eq", "ne")


def layout(operation: Operation) -> Iterator[Change]:
    """All faults of the layout that this operation may have."""
    if operation.name in RESHAPES[:6]:
        yield from _reshape(operation)
    elif operation.name in TRANSPOSES:
        yield from _transpose(operation)


def reshaped(operation: Operation) -> Iterator[Change]:
    """A reshape in place of a transpose. It is tried last: it may be the same as a missing transpose before another reshape."""
    if operation.name in TRANSPOSES and operation.sources:
        old, new = tuple(operation.sources[0].tensor.shape), operation.shape
        if old != new:
            says = f"reshapes {_sizes(old)} to {_sizes(new)}, where the reference transposes"
            reshape = first_argument(lambda x: x.reshape(new))
            yield Change("reshape for transpose", says, reshape, "reshapes where the reference transposes")


def transposed(operation: Operation) -> Iterator[Change]:
    """A transposed operand of an operation on single values."""
    for place, operand in enumerate(operation.args[:2]) if operation.name in ELEMENTWISE else ():
        if isinstance(operand, Tensor) and operand.dim() > 1 and operand.shape[-1] == operand.shape[-2] > 1:
            says = f"has the {ORDINALS[place]} operand of an operation ({operation.name}) transposed"
            yield Change("operand transposed", says, with_argument(operation, place, "", lambda x: x.mT))


def _reshape(operation: Operation) -> Iterator[Change]:
    if not operation.sources:
        return
    source = operation.sources[0]
    old, new = tuple(source.tensor.shape), operation.shape
    maker = source.maker
    if maker is not None and maker.name in TRANSPOSES and maker.sources:
        before = maker.sources[0]
        yield Change(
            "transpose missing",
            f"does not transpose before it makes {_sizes(new)} of {_sizes(old)}",
            lambda args, kwargs: before.value().reshape(new),
        )
    for start, end, first, last in _blocks(old, new):
        if end - start == 1 and 2 <= last - first <= MOST_FACTORS:
            yield from _split(new, start, first, last)
        elif last - first == 1 and 2 <= end - start <= MOST_FACTORS:
            yield from _merged(old, new, start, end)


def _sizes(sizes: Sequence[int]) -> str:
    return f"({', '.join(map(str, sizes))})"


def _blocks(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """The smallest groups of axes of both shapes with the same number of values: start and end in each shape."""
    start = first = 0
    while start < len(old) and first < len(new):
        end, last = start + 1, first + 1
        while math.prod(old[start:end]) != math.prod(new[first:last]):
            if math.prod(old[start:end]) < math.prod(new[first:last]):
                end += 1
            else:
                last += 1
            if end > len(old) or last > len(new):
                return
        yield start, end, first, last
        start, first = end, last


def _orders(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The other orders of axes of these sizes; none where one of them has a single value."""
    plain = tuple(range(len(sizes)))
    if 1 not in sizes:
        yield from (order for order in itertools.permutations(plain) if order != plain)


def _split(new: Sequence[int], axis: int, first: int, last: int) -> Iterator[Change]:
    """One axis that is split into factors in another order, or into others."""
    factors = new[first:last]
    if len(factors) == 2:
        yield from _other_factors(new, axis, first, factors)
    for order in _orders(factors):
        shuffled = [factors[place] for place in order]
        shape = [*new[:first], *shuffled, *new[last:]]
        back = [*range(first), *(first + order.index(place) for place in range(len(order))), *range(last, len(new))]
        yield Change(
            "axes split in another order",
            f"splits axis {axis} as {_sizes(shuffled)} and reorders it; the reference as {_sizes(factors)}",
            first_argument(lambda x, shape=shape, back=back: x.reshape(shape).permute(back)),
        )


def _other_factors(new: Sequence[int], axis: int, first: int, factors: Sequence[int]) -> Iterator[Change]:
    """Other numbers of groups, or of heads."""
    size = math.prod(factors)
    for groups in dict.fromkeys((factors[1], 2 * factors[0], factors[0] // 2, 2, 3, 4, 8, 16)):
        if groups > 1 and size % groups == 0 and groups not in (factors[0], size):
            others = [groups, size // groups]
            yield Change(
                "group count",
                f"splits axis {axis} as {_sizes(others)}; the reference as {_sizes(factors)}",
                first_argument(lambda x, others=others: x.reshape([*new[:first], *others, *new[first + 2 :]])),
            )


def _merged(old: Sequence[int], new: Sequence[int], start: int, end: int) -> Iterator[Change]:
    """Axes that are merged into one in another order."""
    plain = ", ".join(map(str, range(start, end)))
    for order in _orders(old[start:end]):
        axes = [start + place for place in order]
        whole = [*range(start), *axes, *range(end, len(old))]
        yield Change(
            "axes merged in another order",
            f"merges the axes in the order {', '.join(map(str, axes))} of {_sizes(old)}; the reference in the order {plain}",
            first_argument(lambda x, whole=whole: x.permute(whole).reshape(new)),
            f"merges the axes in the order {', '.join(map(str, axes))}; the reference in the order {plain}",
        )


def _transpose(operation: Operation) -> Iterator[Change]:
    if not operation.sources:
        return
    old, new = tuple(operation.sources[0].tensor.shape), operation.shape
    if old == new:
        yield Change("transpose missing", f"does not transpose {_sizes(old)}", first_argument())
    for order in itertools.permutations(range(len(old))) if 2 <= len(old) <= MOST_FACTORS else ():
        if order != tuple(range(len(old))) and tuple(old[axis] for axis in order) == new:
            says = f"transposes {_sizes(old)} by the order {_sizes(order)} of its axes"
            yield Change("another transpose", says, first_argument(lambda x, order=order: x.permute(order)))
