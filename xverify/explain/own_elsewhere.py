"""Mistakes in what a user's own step computes elsewhere than in its losses: in the model, in an optimizer, before the model."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from ..replay.operation import Operation
from .faults.glue.catalogue import rewrites
from .faults.glue.operation import Rewrite, first_argument
from .own_mistake import Case, Mistake
from .own_recording import changing, traced


def elsewhere(case: Case) -> Iterator[Mistake]:
    """What the user's code outside of the losses computes in another way, with usual faults, and passes of loops left out."""
    step = traced(case)
    in_place = [each for each in step.others if each.in_place]
    for chosen in instructions(in_place):
        says = "leaves out a change of a tensor in place, of all tensors that this line changes"
        yield changing(step, Rewrite("change in place missing", says, dict.fromkeys(chosen, first_argument())))
    for rewrite in rewrites(step.others, instructions):
        yield changing(step, rewrite)
    for earlier in _loops(step.others):
        rewrite = Rewrite("passes", "leaves out the last pass of a loop", dict.fromkeys(earlier, first_argument()))
        yield changing(step, rewrite, {operation: step.places[before][1] for operation, before in earlier.items()})


def instructions(sites: Iterable[Operation]) -> Collection[frozenset[Operation]]:
    """The operations of each instruction, and those of each line: an optimizer treats all its weights alike."""
    found: dict[tuple[str, int], set[Operation]] = {}
    for operation in sites:
        found.setdefault((operation.line, operation.instruction), set()).add(operation)
        found.setdefault((operation.line, -1), set()).add(operation)
    return dict.fromkeys(map(frozenset, found.values()))


def _loops(operations: Iterable[Operation]) -> Iterator[Mapping[Operation, Operation]]:
    """For each instruction of a loop: the operations of its last passes, each with that of the pass before."""
    by_place: dict[tuple[str, int, str], list[Operation]] = {}
    for operation in operations:
        by_place.setdefault((operation.line, operation.instruction, operation.name), []).append(operation)
    for every in by_place.values():
        before = _before(every)
        last = {operation: earlier for operation, earlier in before.items() if operation not in before.values()}
        if last:
            yield last


def _before(operations: list[Operation]) -> dict[Operation, Operation]:
    """Operation -> the nearest one of the same instruction from whose result it is computed."""
    every = set(operations)
    found = dict[Operation, Operation]()
    for operation in operations if len(operations) > 1 else ():
        seen = {operation}
        left = deque(operation.sources)
        while left and operation not in found:
            maker = left.popleft().maker
            if maker is None or maker in seen:
                continue
            seen.add(maker)
            if maker in every:
                found[operation] = maker
            left.extend(maker.sources)
    return found
