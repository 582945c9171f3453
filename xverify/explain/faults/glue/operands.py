"""Another tensor in place of the right one: an old value for a new one, two parameters or layers that are exchanged.

Tensors that a port can confuse have the same shape. They are either values that the glue code is given (weights, inputs of the
model, outputs of layers) or values from which the right one is computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ....float64.structures import flatten, unflatten
from ....replay.operation import Compute, Keywords, Operation, Source
from .operation import Rewrite

UNNAMED = "another tensor that its code is given"
MOST_PAIRS = 40  # of tensors that are exchanged
FARTHEST = 12  # operations between a value and the older one
MOST_OLDER = 4  # older values that are tried in place of one
MOST_AT_ONCE = 64  # tensors at one distance, beyond which no older ones are searched

Named = Callable[[Tensor], str]  # what a sentence calls a tensor that glue code is given; "" where nothing is known


def other_operands(operations: Sequence[Operation], named: Named, outputs: Sequence[Tensor]) -> Iterator[Rewrite]:
    """Other tensors of the same shape in place of those that the operations, which are in order, take.

    outputs: those of the last layers, which the operations need not take.
    """
    yield from _exchanged(operations, named, outputs)
    yield from _older(operations, named)


# -- values that the glue code is given ---------------------------------------------------------------------------------


def _is_given(source: Source) -> bool:
    """Whether a tensor was not computed by glue code since the last tensors that agree with the port's."""
    return source.maker is None or source.index in source.maker.right


def _exchanged(operations: Sequence[Operation], named: Named, outputs: Sequence[Tensor]) -> Iterator[Rewrite]:
    """Two tensors of one shape exchanged, or one taken for the other."""
    takers: dict[
        int, list[tuple[Operation, int]]
    ] = {}  # identity of a tensor -> the operations that take it, and at which place
    given: dict[int, Source] = {}
    for operation in operations:
        for place, source in enumerate(operation.sources):
            tensor = source.tensor
            if _is_given(source) and tensor.is_floating_point() and tensor.numel() > 1:
                given[id(tensor)] = source
                takers.setdefault(id(tensor), []).append((operation, place))
    known = list(given.values())
    for tensor in outputs:
        if not any(torch.equal(tensor, each.tensor) for each in known if each.tensor.shape == tensor.shape):
            given[id(tensor)], takers[id(tensor)] = Source(tensor, tensor._version), []
    pairs = [(a, b) for a, b in itertools.combinations(given, 2) if given[a].tensor.shape == given[b].tensor.shape]
    for a, b in pairs[:MOST_PAIRS]:
        first, second = named(given[a].tensor), named(given[b].tensor)
        if not first and not second:
            continue
        first, second = first or UNNAMED, second or UNNAMED
        other = [*((*taker, given[b]) for taker in takers[a]), *((*taker, given[a]) for taker in takers[b])]
        if takers[a] and takers[b]:
            yield Rewrite("tensors exchanged", f"has {first} and {second} exchanged", _with_others(other))
        for right, wrong, theirs, mine in ((a, b, first, second), (b, a, second, first)):
            says = f"uses {mine}, where the reference uses {theirs}"
            found = [(*taker, given[wrong]) for taker in takers[right]]
            for chosen in ([found] if found else []) + [[each] for each in found if len(found) > 1]:
                yield Rewrite("another tensor", says, _with_others(chosen))


def _with_others(others: Sequence[tuple[Operation, int, Source]]) -> dict[Operation, Compute]:
    """The operations with other tensors: each is an operation, which of its tensors, and what it takes in its place."""
    found: dict[Operation, dict[int, Source]] = {}
    for operation, place, source in others:
        found.setdefault(operation, {})[place] = source
    return {operation: _with_sources(operation, places) for operation, places in found.items()}


def _with_sources(operation: Operation, places: Mapping[int, Source]) -> Compute:
    def compute(args: tuple[Any, ...], kwargs: Keywords) -> Any:
        values = [
            places[place].value() if place in places else value for place, value in enumerate(flatten((args, kwargs)))
        ]
        args, kwargs = unflatten((args, kwargs), values)
        return operation.function(*args, **kwargs)

    return compute


# -- values from which the right one is computed ------------------------------------------------------------------------


def _older(operations: Sequence[Operation], named: Named) -> Iterator[Rewrite]:
    """An older value of the same shape: the state before its update, or a value that an operation was not applied to.

    All passes of a loop are changed together, because it has its fault in every pass.
    """
    groups: dict[tuple[Any, ...], list[tuple[Operation, int, Source]]] = {}
    says: dict[tuple[Any, ...], str] = {}
    for operation in operations:
        for place, source in enumerate(operation.sources):
            for number, older in enumerate(before(source)):
                known = operation.line and operation.instruction >= 0
                spot = (operation.line, operation.instruction) if known else ("", operation.number)
                key = (*spot, place, number)
                groups.setdefault(key, []).append((operation, place, older))
                says[key] = clause(source, older, named)
    for key, chosen in groups.items():
        yield Rewrite("older value", f"takes {says[key]}", _with_others(chosen))


def before(source: Source) -> Iterator[Source]:
    """The nearest values of the same shape from which a tensor is computed."""
    shape, dtype = source.tensor.shape, source.tensor.dtype
    found, level, seen = 0, [source], {id(source.tensor)}
    for _ in range(FARTHEST):
        makers = [one.maker for one in level if one.maker is not None and not _is_given(one)]
        level = list({id(each.tensor): each for maker in makers for each in maker.sources}.values())
        for each in level:
            if each.tensor.shape == shape and each.tensor.dtype == dtype and id(each.tensor) not in seen:
                yield each
                found += 1
            seen.add(id(each.tensor))
        if found >= MOST_OLDER or len(level) > MOST_AT_ONCE:
            return


def clause(source: Source, older: Source, named: Named) -> str:
    """The older value in place of a tensor, for a sentence."""
    line = source.maker.line if source.maker is not None else ""
    before = older.maker.line if older.maker is not None else ""
    what = f"an older value, that of {before}," if before else named(older.tensor) or "an older value"
    return f"{what} where the reference takes what {line or 'an operation'} computes from it"
