"""Ports that take the outputs of layers for one another: exchanged, or in another order where one layer computes several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ..float64.structures import map_tensors
from ..replay.operation import Compute, Operation
from .faults.glue.operation import Rewrite

MOST_LAYERS = 4  # whose outputs are combined
MOST_HEADS = 64

Named = Mapping[str, Tensor]  # layer -> its output, as the operations were given it
Other = Callable[[list[Tensor]], Sequence[Tensor]]  # what a port takes in the place of outputs


def exchanges(operations: Sequence[Operation], outputs: Mapping[str, Tensor]) -> Iterator[Rewrite]:
    """The changes of operations in which outputs of layers stand for one another.

    operations: those behind a tensor. outputs: layer -> its output as it was captured, in float64, of the last layers.
    """
    starts = list(
        {id(each.tensor): each.tensor for op in operations for each in op.sources if each.maker is None}.values()
    )
    named: dict[str, Tensor] = {}
    for name, output in outputs.items():
        found = next((each for each in starts if each.shape == output.shape and torch.equal(each, output)), None)
        if found is not None and len(named) < MOST_LAYERS and all(found is not other for other in named.values()):
            named[name] = found
    for pair in combinations(named, 2):
        if named[pair[0]].shape == named[pair[1]].shape:
            says = f"takes the output of `{pair[0]}` for that of `{pair[1]}`, and the other way round"
            yield _rewrite("outputs exchanged", says, operations, [named[name] for name in pair], _reversed)
    for count in range(len(named), 1, -1):
        for several in combinations(named, count):
            yield from _reordered(operations, {name: named[name] for name in several})


def _reordered(operations: Sequence[Operation], named: Named) -> Iterator[Rewrite]:
    """The changes for a layer that computes several of the reference's, whose parts are taken in blocks or by heads."""
    tensors = list(named.values())
    if len({tensor.shape for tensor in tensors}) > 1 or tensors[0].dim() < 2:
        return
    size = tensors[0].shape[-1]
    layers = f"`{'`, `'.join(list(named)[:-1])}` and `{list(named)[-1]}`"
    for heads in (each for each in range(2, min(MOST_HEADS, size // 2) + 1) if size % each == 0):
        says = f"takes the outputs of {layers} as if they alternated in {heads} groups, and they follow one another"
        yield _rewrite("parts alternate", says, operations, tensors, partial(_alternating, heads))
        says = f"takes the outputs of {layers} as if they followed one another, and they alternate in {heads} groups"
        yield _rewrite("parts in blocks", says, operations, tensors, partial(_in_blocks, heads))


def _reversed(tensors: list[Tensor]) -> list[Tensor]:
    return tensors[::-1]


def _alternating(heads: int, tensors: list[Tensor]) -> Sequence[Tensor]:
    whole = torch.cat(tensors, -1).unflatten(-1, (heads, len(tensors), -1))
    return [each.flatten(-2) for each in whole.unbind(-2)]


def _in_blocks(heads: int, tensors: list[Tensor]) -> Sequence[Tensor]:
    groups = torch.stack([each.unflatten(-1, (heads, -1)) for each in tensors], -2)
    return groups.flatten(-3).chunk(len(tensors), -1)


def _rewrite(kind: str, says: str, operations: Sequence[Operation], tensors: list[Tensor], other: Other) -> Rewrite:
    """The operations that are given one of these tensors, given others instead."""

    def computed(operation: Operation) -> Compute:
        def compute(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            taken = dict(zip(map(id, tensors), other(tensors)))
            args, kwargs = map_tensors((args, kwargs), lambda value: taken.get(id(value), value))
            return operation.function(*args, **kwargs)

        return compute

    given = {id(tensor) for tensor in tensors}
    users = [each for each in operations if any(id(source.tensor) in given for source in each.sources)]
    return Rewrite(kind, says, {operation: computed(operation) for operation in users})
