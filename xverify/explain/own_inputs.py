"""Mistakes in what a user's own training step is given: another input of its batch, two exchanged, numbers that are off by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from typing import Any

import torch
from torch import Tensor

from ..float64.own_step import Batch
from ..float64.structures import flatten, map_tensors
from ..replay.operation import Compute, Operation
from .faults.glue.operation import Rewrite
from .own_mistake import Case, Mistake
from .own_recording import Step, calls, changing, traced

MOST_NAMES = 8  # inputs of a batch of which pairs are exchanged


class _Now:
    """The batch of the step that is being made."""

    batch: Batch

    def note(self, batch: Batch) -> Batch:
        self.batch = batch
        return batch


def inputs(case: Case) -> Iterator[Mistake]:
    """Another input of the batch, in the whole step, or where one operation or one call of a module takes it."""
    yield from _whole(case.steps.batches[0])
    step, now = traced(case), _Now()
    changes = list(_of_one(step.batch, now))
    for operation in (*step.operations, *step.others):
        given = flatten((operation.args, operation.kwargs))
        for name, says, change in changes:
            if any(each is step.batch[name] for each in given):
                rewrite = Rewrite("input", says, {operation: _computing(operation, change)})
                yield replace(changing(step, rewrite), batch=now.note)
    yield from _exchanged(step, now)
    for name, call in step.calls:
        where = f"`{name}`" + (f" (call {call + 1} in a step)" if (name, 1) in step.calls else "")
        for _, says, change in changes:
            around = partial(_given, name, call, change)
            yield Mistake("input", f"the step {says} for {where}", around=around, batch=now.note)


def _exchanged(step: Step, now: _Now) -> Iterator[Mistake]:
    """Two inputs exchanged in all operations of a line."""
    for name, other in _alike(step.batch):
        swap = partial(_swapped, now, name, other)
        takes = (step.batch[name], step.batch[other])
        lines: dict[str, dict[Operation, Compute]] = {}
        for operation in (*step.operations, *step.others) if name < other else ():
            if any(each is one for each in flatten((operation.args, operation.kwargs)) for one in takes):
                lines.setdefault(operation.line, {})[operation] = _computing(operation, swap)
        for computes in lines.values():
            says = f"exchanges the inputs {name!r} and {other!r}"
            yield replace(changing(step, Rewrite("input", says, computes)), batch=now.note)


def _swapped(now: _Now, name: str, other: str, tensor: Tensor) -> Tensor:
    first, second = now.batch[name], now.batch[other]
    return second if tensor is first else first if tensor is second else tensor


def _whole(batch: Batch) -> Iterator[Mistake]:
    """Changes of a batch before each step."""
    for name, other in _alike(batch):
        says = f"the step takes input {other!r} where torch.py takes {name!r}"
        yield Mistake("input", says, batch=partial(_with, {name: other}))
        if name < other:
            says = f"the step exchanges the inputs {name!r} and {other!r}"
            yield Mistake("input", says, batch=partial(_with, {name: other, other: name}))
    for (first, other1), (second, other2) in combinations(_alike(batch), 2):
        if len({first, second, other1, other2}) == 4:
            says = f"the step takes the inputs {other1!r} and {other2!r} where torch.py takes {first!r} and {second!r}"
            yield Mistake("input", says, batch=partial(_with, {first: other1, second: other2}))
    for name, tensor in batch.items():
        for words, one in (("plus", 1), ("minus", -1)) if _counts(tensor) else ():
            says = f"the step takes input {name!r} {words} one"
            yield Mistake("input", says, batch=partial(_shifted, name, one))


def _alike(batch: Batch) -> list[tuple[str, str]]:
    """The pairs of inputs that can take the place of one another."""
    names = list(batch)[:MOST_NAMES]
    return [(a, b) for a, b in permutations(names, 2) if _same(batch[a], batch[b])]


def _same(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and first.dtype == second.dtype


def _counts(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _shifted(name: str, one: int, batch: Batch) -> Batch:
    return {**batch, name: batch[name] + one}


def _with(names: Mapping[str, str], batch: Batch) -> Batch:
    return {name: batch[names.get(name, name)] for name in batch}


def _of_one(batch: Batch, now: _Now) -> Iterator[tuple[str, str, Callable[[Tensor], Tensor]]]:
    """(an input, a clause on what is taken for it in one place, the change of a tensor there)."""

    def taking(name: str, other: str, one: int, tensor: Tensor) -> Tensor:
        return now.batch[other] + one if tensor is now.batch[name] else tensor

    for name, other in _alike(batch):
        says = f"takes input {other!r} where torch.py takes {name!r}"
        yield name, says, partial(taking, name, other, 0)
    for name, tensor in batch.items():
        for words, one in (("plus", 1), ("minus", -1)) if _counts(tensor) else ():
            says = f"takes input {name!r} {words} one"
            yield name, says, partial(taking, name, name, one)


def _computing(operation: Operation, change: Callable[[Tensor], Tensor]) -> Compute:
    def compute(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given, named = map_tensors((args, kwargs), change)
        return operation.function(*given, **named)

    return compute


def _given(name: str, call: int, change: Callable[[Tensor], Tensor], model: Any) -> Any:
    """Change what one call of a module is given."""

    def before(called: str, number: int, args: Any) -> Any:
        if (called, number) != (name, call):
            return None
        return map_tensors(args, change)

    return calls(model, before=before)
