"""Another tensor in place of the right one: an old value for a new one, two parameters or layers that are exchanged.

Where one layer of a port computes what several of the reference do, their outputs may also be taken in another order.

Tensors that a port can confuse have the same shape. They are either values that the glue code is given (weights, inputs of the
model, outputs of layers) or values from which the right one is computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....float64.structures import flatten, unflatten
from ....replay.operation import Compute, Keywords, Operation, Source
from .operation import Rewrite

UNNAMED = "another tensor that its code is given"
OUTPUT = "the output of "  # begins the name of an output of a layer
MOST_PAIRS = 40  # of tensors that are exchanged
MOST_LAYERS = 4  # whose outputs are taken in another order
MOST_HEADS = 64
FARTHEST = 12  # operations between a value and the older one
MOST_OLDER = 4  # older values that are tried in place of one
MOST_AT_ONCE = 64  # tensors at one distance, beyond which no older ones are searched

Named = Callable[[Tensor], str]  # what a sentence calls a tensor that glue code is given; "" where nothing is known
Taker = tuple[Operation, int]  # an operation that takes a tensor, and which of its tensors this is
Taken = Callable[[], Tensor]  # what it takes in its place
Order = Callable[[list[Tensor]], Sequence[Tensor]]  # another order of the parts of outputs of layers


def other_operands(operations: Sequence[Operation], named: Named, outputs: Sequence[Tensor]) -> Iterator[Rewrite]:
    """Other tensors of the same shape in place of those that the operations, which are in order, take.

    outputs: those of the last layers, the last one first, which the operations need not take.
    """
    given, takers = _given(operations)
    yield from _reordered(given, takers, named, outputs)
    yield from _exchanged(given, takers, named, outputs)
    yield from _exchanged_rows(given, takers, named)
    yield from _older(operations, named)


# -- values that the glue code is given ---------------------------------------------------------------------------------


def _is_given(source: Source) -> bool:
    """Whether a tensor was not computed by glue code since the last tensors that agree with the port's."""
    return source.maker is None or source.index in source.maker.right


def _given(operations: Sequence[Operation]) -> tuple[dict[int, Source], dict[int, list[Taker]]]:
    """The tensors that the glue code is given, and the operations that take them, by the identity of the tensor."""
    given: dict[int, Source] = {}
    takers: dict[int, list[Taker]] = {}
    for operation in operations:
        for place, source in enumerate(operation.sources):
            tensor = source.tensor
            if _is_given(source) and tensor.is_floating_point() and tensor.numel() > 1:
                given[id(tensor)] = source
                takers.setdefault(id(tensor), []).append((operation, place))
    return given, takers


def _exchanged(
    given: Mapping[int, Source], takers: Mapping[int, list[Taker]], named: Named, outputs: Sequence[Tensor]
) -> Iterator[Rewrite]:
    """Two tensors of one shape exchanged, or one taken for the other."""
    known = [each.tensor for each in given.values()]
    unused = [each for each in outputs if not any(_equal(each, tensor) for tensor in known)]
    given = {**given, **{id(tensor): Source(tensor, tensor._version) for tensor in unused}}
    pairs = [(a, b) for a, b in itertools.combinations(given, 2) if given[a].tensor.shape == given[b].tensor.shape]
    for a, b in pairs[:MOST_PAIRS]:
        first, second = named(given[a].tensor), named(given[b].tensor)
        if not first and not second:
            continue
        of_a, of_b = takers.get(a, []), takers.get(b, [])
        first, second = first or UNNAMED, second or UNNAMED
        if of_a and of_b:
            says = f"has {first} and {second} exchanged"
            if first.startswith(OUTPUT) and second.startswith(OUTPUT):
                says = f"takes {first} for {second.replace(OUTPUT, 'that of ')}, and the other way round"
            other = [*((*taker, given[b].value) for taker in of_a), *((*taker, given[a].value) for taker in of_b)]
            yield Rewrite("tensors exchanged", says, _with_others(other))
        for users, wrong, theirs, mine in ((of_a, b, first, second), (of_b, a, second, first)):
            says = f"uses {mine}, where the reference uses {theirs}"
            found = [(*taker, given[wrong].value) for taker in users]
            for chosen in ([found] if found else []) + [[each] for each in found if len(found) > 1]:
                yield Rewrite("another tensor", says, _with_others(chosen))


def _equal(tensor: Tensor, other: Tensor) -> bool:
    return tensor.shape == other.shape and torch.equal(tensor, other)


def _reordered(
    given: Mapping[int, Source], takers: Mapping[int, list[Taker]], named: Named, outputs: Sequence[Tensor]
) -> Iterator[Rewrite]:
    """A layer that computes several of the reference's, whose parts are taken in blocks or by heads."""
    found = [
        next((key for key, source in given.items() if _equal(each, source.tensor)), None) for each in reversed(outputs)
    ]
    keys = list(dict.fromkeys(key for key in found if key is not None))[:MOST_LAYERS]
    names = {key: named(given[key].tensor).removeprefix(OUTPUT) for key in keys}
    for count in range(len(keys), 1, -1):
        for chosen in itertools.combinations([key for key in keys if names[key]], count):
            shapes = {given[key].tensor.shape for key in chosen}
            size = given[chosen[0]].tensor.shape[-1]
            if len(shapes) > 1 or given[chosen[0]].tensor.dim() < 2:
                continue
            layers = f"takes the outputs of {', '.join(names[key] for key in chosen[:-1])} and {names[chosen[-1]]} as if they"
            in_order = partial(_in_order, [given[key] for key in chosen], [takers[key] for key in chosen])
            for heads in (each for each in range(2, min(MOST_HEADS, size // 2) + 1) if size % each == 0):
                says = f"{layers} alternated in {heads} groups, and they follow one another"
                yield Rewrite("parts alternate", says, _with_others(in_order(partial(_alternating, heads))))
                says = f"{layers} followed one another, and they alternate in {heads} groups"
                yield Rewrite("parts in blocks", says, _with_others(in_order(partial(_in_blocks, heads))))


def _exchanged_rows(given: Mapping[int, Source], takers: Mapping[int, list[Taker]], named: Named) -> Iterator[Rewrite]:
    """Two outputs of layers exchanged, of which one has its rows in the other order of rotary embeddings."""
    names = {key: named(source.tensor) for key, source in given.items()}
    keys = [key for key, name in names.items() if name.startswith(OUTPUT)]
    for a, b in itertools.combinations(keys[-MOST_LAYERS:], 2):
        one, other = given[a], given[b]
        size = one.tensor.shape[-1]
        if one.tensor.shape != other.tensor.shape:
            continue
        says = (
            f"takes {names[a]} for {names[b].replace(OUTPUT, 'that of ')}, and the other way round, where one of them"
        )
        for heads in (each for each in range(1, min(MOST_HEADS, size // 4) + 1) if size % (2 * each) == 0):
            for there, back in ((_alternated, _halved), (_halved, _alternated)):
                taken = [(*taker, partial(_rows, there, heads, one)) for taker in takers[b]]
                taken += [(*taker, partial(_rows, back, heads, other)) for taker in takers[a]]
                text = f"{says} has its rows in the other order of rotary embeddings ({heads} heads)"
                yield Rewrite("tensors exchanged", text, _with_others(taken))


def _rows(order: Callable[[Tensor], Tensor], heads: int, source: Source) -> Tensor:
    return order(source.value().unflatten(-1, (heads, -1))).flatten(-2)


def _alternated(x: Tensor) -> Tensor:
    """The two halves of the last axis, alternating."""
    return x.unflatten(-1, (2, -1)).mT.flatten(-2)


def _halved(x: Tensor) -> Tensor:
    """The even and then the odd places of the last axis."""
    return x.unflatten(-1, (-1, 2)).mT.flatten(-2)


def _in_order(
    sources: Sequence[Source], takers: Sequence[list[Taker]], order: Order
) -> list[tuple[Operation, int, Taken]]:
    """The operations that take these tensors, with the tensor of the same place in another order of their parts."""

    def taken(index: int) -> Tensor:
        return order([source.value() for source in sources])[index]

    return [(*taker, partial(taken, index)) for index, users in enumerate(takers) for taker in users]


def _alternating(heads: int, tensors: list[Tensor]) -> Sequence[Tensor]:
    whole = torch.cat(tensors, -1).unflatten(-1, (heads, len(tensors), -1))
    return [each.flatten(-2) for each in whole.unbind(-2)]


def _in_blocks(heads: int, tensors: list[Tensor]) -> Sequence[Tensor]:
    groups = torch.stack([each.unflatten(-1, (heads, -1)) for each in tensors], -2)
    return groups.flatten(-3).chunk(len(tensors), -1)


def _with_others(others: Sequence[tuple[Operation, int, Taken]]) -> dict[Operation, Compute]:
    """The operations with other tensors: each is an operation, which of its tensors, and what it takes in its place."""
    found: dict[Operation, dict[int, Taken]] = {}
    for operation, place, taken in others:
        found.setdefault(operation, {})[place] = taken
    return {operation: _with_values(operation, places) for operation, places in found.items()}


def _with_values(operation: Operation, places: Mapping[int, Taken]) -> Compute:
    def compute(args: tuple[Any, ...], kwargs: Keywords) -> Any:
        values = [places[place]() if place in places else value for place, value in enumerate(flatten((args, kwargs)))]
        args, kwargs = unflatten((args, kwargs), values)
        return operation.function(*args, **kwargs)

    return compute


# -- values from which the right one is computed ------------------------------------------------------------------------


def _older(operations: Sequence[Operation], named: Named) -> Iterator[Rewrite]:
    """An older value of the same shape: the state before its update, or a value that an operation was not applied to.

    All passes of a loop are changed together, because it has its fault in every pass.
    """
    groups: dict[tuple[Any, ...], list[tuple[Operation, int, Taken]]] = {}
    says: dict[tuple[Any, ...], str] = {}
    for operation in operations:
        for place, source in enumerate(operation.sources):
            for number, older in enumerate(before(source)):
                known = operation.line and operation.instruction >= 0
                spot = (operation.line, operation.instruction) if known else ("", operation.number)
                key = (*spot, place, number)
                groups.setdefault(key, []).append((operation, place, older.value))
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
