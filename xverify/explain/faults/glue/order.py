"""Faults in the order of values: concatenating, splitting, rolling, indexing, and moving channels into space."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....replay.operation import Operation
from .operation import Change, argument, first_argument, with_argument, with_result

MOST_PARTS = 4  # tensors of which all orders are tried
EVERY = {2: "second", 3: "third", 4: "fourth"}

JOINS = ("cat", "stack", "hstack", "vstack", "dstack")
SPLITS = ("chunk", "split", "unbind", "tensor_split", "split_with_sizes")


def order(operation: Operation) -> Iterator[Change]:
    """All faults of the order of values that this operation may have."""
    name = operation.name
    if name in JOINS:
        yield from _concatenation(operation)
    elif name in SPLITS:
        yield from _splitting(operation)
    elif name == "roll":
        yield from _rolling(operation)
    elif name == "getitem":
        yield from _indexing(operation)
    elif name == "glu":
        axis = _axis(operation, 1, -1)
        exchanged = with_argument(operation, 0, "input", lambda x: torch.cat(x.chunk(2, axis)[::-1], axis))
        yield Change("halves exchanged", "takes the first half of its GLU as the gate", exchanged)
    elif name in ("pixel_shuffle", "pixel_unshuffle"):
        yield from _shuffling(operation)
    elif name == "flip":
        yield Change("flip missing", "does not reverse the order that the reference reverses", first_argument())
    elif name in ("repeat_interleave", "repeat"):
        yield from _repeating(operation)
    elif name == "setitem":
        yield from _assigning(operation)


# -- concatenating and splitting ----------------------------------------------------------------------------------------


def _orders(count: int) -> Iterator[tuple[int, ...]]:
    """The orders of so many parts other than theirs; the reversed one first."""
    plain = tuple(range(count))
    yield plain[::-1]
    yield from (other for other in itertools.permutations(plain) if other not in (plain, plain[::-1]))


def _written(places: Sequence[int]) -> str:
    return ", ".join(str(place + 1) for place in places)


def _chosen(places: Sequence[int], parts: Sequence[Tensor]) -> list[Tensor]:
    return [parts[place] for place in places]


def _axis(operation: Operation, position: int, default: int) -> int:
    axis = operation.argument(position, "dim", "axis", default=default)
    return axis if isinstance(axis, int) else default


def _concatenation(operation: Operation) -> Iterator[Change]:
    tensors = operation.argument(0, "tensors")
    if not isinstance(tensors, (tuple, list)) or len(tensors) < 2:
        return
    if len(tensors) > MOST_PARTS:
        yield from _late(operation)
        says = f"joins {len(tensors)} tensors in the reverse order"
        yield Change(
            "concatenation order", says, with_argument(operation, 0, "tensors", lambda parts: list(parts)[::-1])
        )
        return
    plain = _written(range(len(tensors)))
    for places in _orders(len(tensors)):
        says = f"concatenates in the order {_written(places)} what the reference concatenates in the order {plain}"
        yield Change("concatenation order", says, with_argument(operation, 0, "tensors", partial(_chosen, places)))
    shape = operation.shape
    axis = _axis(operation, 1, 0) % len(shape)
    if operation.name == "cat" and len({tuple(tensor.shape) for tensor in tensors}) == 1:
        interleaved = argument(0, "tensors", lambda parts: torch.stack(tuple(parts), axis + 1).flatten(axis, axis + 1))
        yield Change("interleaved", "interleaves the tensors that the reference concatenates", interleaved)
    elif operation.name == "stack":
        yield from _late(operation)
        blocks = argument(0, "tensors", lambda parts: torch.cat(tuple(parts), axis - 1).reshape(shape))
        yield Change("interleaved", "concatenates the tensors that the reference interleaves", blocks)


def _late(operation: Operation) -> Iterator[Change]:
    """The values of one step earlier, as a loop stacks them that keeps its state before it updates it."""
    if operation.name == "stack":
        says = "joins the values of one step earlier, with zeros as the first one: old states for new ones"
        late = with_argument(operation, 0, "tensors", lambda parts: [torch.zeros_like(parts[0]), *parts[:-1]])
        yield Change("one step late", says, late)


def _splitting(operation: Operation) -> Iterator[Change]:
    count = len(operation.shapes)
    if not 2 <= count <= MOST_PARTS:
        return
    if len(set(operation.shapes)) > 1:
        yield from _splitting_unevenly(operation)
        return
    for places in _orders(count):
        yield Change(
            "split order",
            f"takes parts {_written(places)} of a split for the reference's parts {_written(range(count))}",
            with_result(operation, partial(_chosen, places)),
        )
    if operation.name != "unbind":
        axis = _axis(operation, 2, 0)
        yield Change(
            "interleaved",
            f"takes every {EVERY[count]} value for a part, where the reference takes blocks",
            first_argument(lambda x: [x.transpose(axis, 0)[k::count].transpose(axis, 0) for k in range(count)]),
        )


def _splitting_unevenly(operation: Operation) -> Iterator[Change]:
    """Parts of different sizes that lie in another order, and parts of one size that are taken for each other."""
    axis, count = _axis(operation, 2, 0), len(operation.shapes)
    sizes = [shape[axis] for shape in operation.shapes]
    for places in _orders(count):
        if [operation.shapes[place] for place in places] == operation.shapes:
            says = f"takes parts {_written(places)} of a split for the reference's parts {_written(range(count))}"
            yield Change("split order", says, with_result(operation, partial(_chosen, places)))

        def parted(x: Tensor, places: Sequence[int] = places) -> list[Tensor]:
            found = x.split([sizes[place] for place in places], axis)
            return [found[places.index(place)] for place in range(count)]

        says = f"has its parts of the sizes {_numbers(sizes)} in the order {_written(places)}"
        yield Change("split order", says, first_argument(parted))


def _repeating(operation: Operation) -> Iterator[Change]:
    each, whole = "repeats each value", "repeats the whole axis"
    if operation.name == "repeat":
        repeated = [(axis, times) for axis, times in enumerate(operation.integers()) if times > 1]
        if len(repeated) == 1 and len(operation.shape) == operation.sources[0].tensor.dim():
            axis, times = repeated[0]
            compute = first_argument(lambda x: x.repeat_interleave(times, axis))
            yield Change("repeat order", f"{each}, where the reference {whole}", compute)
        return
    axis, times = operation.argument(2, "dim"), operation.argument(1, "repeats")
    if isinstance(axis, int) and isinstance(times, int):
        compute = first_argument(lambda x: torch.cat([x] * times, axis))
        yield Change("repeat order", f"{whole}, where the reference {each}", compute)


# -- rolling and indexing -----------------------------------------------------------------------------------------------


def _rolling(operation: Operation) -> Iterator[Change]:
    given = operation.argument(1, "shifts")
    shifts = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not all(isinstance(shift, int) for shift in shifts):
        return
    negated = tuple(-shift for shift in shifts)
    others = {negated: "roll direction"}
    if len(shifts) > 1:
        others[shifts[::-1]] = "roll axes"
        for place in range(len(shifts)):
            others[tuple(0 if k == place else shift for k, shift in enumerate(shifts))] = "roll missing"
    for step in (1, -1):
        others.setdefault(tuple(shift + step for shift in shifts), "roll off by one")
    for other, kind in others.items():
        if other != shifts:
            says = f"rolls by {_numbers(other)}; the reference by {_numbers(shifts)}"
            yield Change(kind, says, with_argument(operation, 1, "shifts", other if len(other) > 1 else other[0]))
    yield Change("roll missing", f"does not roll; the reference rolls by {_numbers(shifts)}", first_argument())


def _numbers(values: Sequence[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"({', '.join(map(str, values))})"


def _indexing(operation: Operation) -> Iterator[Change]:
    x, index = operation.argument(0), operation.argument(1)
    if not isinstance(x, Tensor) or operation.source(x) is None:
        return
    items = index if isinstance(index, tuple) else (index,)
    if any(isinstance(item, Tensor) for item in items):
        return
    for place, item in enumerate(items):
        axis = _axis_of(items, place, x.dim())
        if axis is None or axis >= x.dim():
            continue
        size = x.shape[axis]
        others = _other_slices(item, size) if isinstance(item, slice) else _other_integers(item, size)
        for other, says, group in others:
            changed = (*items[:place], other, *items[place + 1 :])
            says, group = f"{says} of axis {axis}", f"{group} of axis {axis}"
            yield Change("index", says, with_argument(operation, 1, "index", changed), group)
        if isinstance(item, int) and not isinstance(item, bool) and all(each == slice(None) for each in items[:place]):
            rest = (*items[:place], *items[place + 1 :])
            yield Change(
                "index",
                f"averages over axis {axis}, where the reference takes position {item}",
                first_argument(lambda x, axis=axis, rest=rest: x.mean(axis)[rest] if rest else x.mean(axis)),
            )


def _axis_of(items: tuple[Any, ...], place: int, dim: int) -> int | None:
    """The axis to which one item of an index belongs; None when it belongs to no axis."""
    if items[place] is None or items[place] is Ellipsis:
        return None
    counted = [item is not None for item in items]
    before = sum(counted[:place])
    if any(item is Ellipsis for item in items[:place]):
        return dim - sum(counted[place:])
    return before


def _assigning(operation: Operation) -> Iterator[Change]:
    """Values that are not assigned, and values that are assigned to other positions."""
    yield Change("assignment missing", "does not assign values that the reference assigns", first_argument())
    x, index = operation.argument(0), operation.argument(1)
    items = index if isinstance(index, tuple) else (index,)
    for place, item in enumerate(items):
        axis = _axis_of(items, place, x.dim())
        if axis is None or not isinstance(item, slice):
            continue
        for other, says, group in _other_slices(item, x.shape[axis]):
            changed = (*items[:place], other, *items[place + 1 :])
            says = says.replace("takes", "assigns to", 1)
            compute = with_argument(operation, 1, "index", changed)
            yield Change("index", f"{says} of axis {axis}", compute, group.replace("takes", "assigns to", 1))


def _other_integers(item: Any, size: int) -> Iterator[tuple[Any, str, str]]:
    """Other positions: the item, a clause, and the clause without numbers."""
    if not isinstance(item, int) or isinstance(item, bool):
        return
    right = item % size
    for other, group in (
        (0, "takes the first position, not the reference's"),
        (size - 1, "takes the last position, not the reference's"),
        (right + 1, "takes the position after the reference's"),
        (right - 1, "takes the position before the reference's"),
        (size - 1 - right, "counts positions from the other end"),
    ):
        if other != right and 0 <= other < size:
            yield other, f"takes position {other}; the reference position {right}", group


def _other_slices(item: slice, size: int) -> Iterator[tuple[Any, str, str]]:
    """Other positions: the item, a clause, and the clause without numbers."""
    try:
        start, stop, step = item.indices(size)
    except TypeError:  # a bound may be a tensor
        return
    if step < 1 or ((start, stop) == (0, size) and step == 1):
        return
    length = stop - start
    for first, group in (
        (0, "takes the first positions"),
        (size - length, "takes the last positions"),
        (start + 1, "takes positions one later than the reference's"),
        (start - 1, "takes positions one earlier than the reference's"),
        (stop, "takes the positions after the reference's"),
        (start - length, "takes the positions before the reference's"),
        (length, "takes the second block of its size"),
    ):
        if first != start and first >= 0 and first + length <= size + (step > 1):
            says = f"takes positions {first} to {first + length - 1}; the reference {start} to {stop - 1}"
            yield slice(first, first + length, step), says, group


# -- channels and space -------------------------------------------------------------------------------------------------


def _shuffling(operation: Operation) -> Iterator[Change]:
    """Other orders of the channels of a pixel shuffle, or of its inverse."""
    r, function = operation.argument(1, "upscale_factor", "downscale_factor"), operation.function
    if not isinstance(r, int):
        return
    if operation.name == "pixel_shuffle":
        last = first_argument(lambda x: function(x.unflatten(-3, (r, r, -1)).movedim(-3, -5).flatten(-5, -3), r))
        turned = first_argument(lambda x: function(x.unflatten(-3, (-1, r, r)).transpose(-4, -3).flatten(-5, -3), r))
    else:
        last = with_result(operation, lambda y: y.unflatten(-3, (-1, r, r)).movedim(-5, -3).flatten(-5, -3))
        turned = with_result(operation, lambda y: y.unflatten(-3, (-1, r, r)).transpose(-4, -3).flatten(-5, -3))
    says = "has its channels as (row, column, channel), as depth_to_space of other frameworks"
    yield Change("pixel-shuffle order", says, last)
    yield Change("pixel-shuffle order", "has row and column exchanged within its channels", turned)
