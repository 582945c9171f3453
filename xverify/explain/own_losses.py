"""Mistakes in what a user's own training step computes around its model: its losses, and where it stops a gradient.

The operations of the step since the outputs of the model are recorded once, and each mistake changes one of them, or one line. Most
changes are those of glue code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..float64.own_step import Taken
from ..float64.structures import map_tensors
from ..replay.operation import Operation
from ..verdict.limits import OWN_EQUAL
from .faults.glue.catalogue import Choose, choices, rewrites
from .faults.glue.losses import losses as of_losses
from .faults.glue.operation import Rewrite, with_result
from .faults.glue.settings import Setting, settings
from .glue_fitting import fitted
from .own_elsewhere import instructions
from .own_mistake import Arrays, Case, Mistake, within
from .own_recording import Step, calls, changing, norms, traced
from .own_statistics import with_biased_variance
from .own_updates import unchanged

# Reads from a step what a number is fitted to.
Results = Callable[[Taken], Tensor]


def losses(case: Case) -> Iterator[Mistake]:
    """What the step computes around its model in another way, with usual faults."""
    step = traced(case)
    for rewrite in (*_of_gradients(step.operations), *rewrites(step.operations)):
        yield changing(step, rewrite)
    for name, call in step.calls:
        where = f"`{name}`" + (f" (call {call + 1} in a step)" if (name, 1) in step.calls else "")
        for what, given in (("input", True), ("output", False)):
            says = f"the step stops the gradient at the {what} of {where} (detach or stop_gradient); torch.py does not"
            yield Mistake("stopped gradient", says, around=partial(_stopped, name, call, given))
        if name in step.normalised:
            says = f"batch norms are in inference mode in {where}"
            for change in (unchanged, with_biased_variance):  # later calls see the statistics of earlier ones
                yield Mistake("inference mode", says, change, partial(_inferring, name, call))


def numbers(case: Case) -> Iterator[Mistake]:
    """The numbers in the operations of the step, such as the weight of a loss, fitted to what the port's steps do."""
    step = traced(case)
    return _fitted(case, step, step.operations, settings)


def numbers_elsewhere(case: Case) -> Iterator[Mistake]:
    """The same of the user's code outside of the losses, such as a rate of steps within the step."""
    step = traced(case)
    return _fitted(case, step, step.others, settings, instructions)


def factors(case: Case) -> Iterator[Mistake]:
    """Factors of losses that torch.py does not have, fitted to what the port's steps do."""
    step = traced(case)
    return _fitted(case, step, step.operations, _factor)


def _fitted(
    case: Case,
    step: Step,
    operations: Sequence[Operation],
    which: Callable[[Operation], Iterator[Setting]],
    choose: Choose = choices,
) -> Iterator[Mistake]:
    """Numbers that are fitted to what the port's steps do. which: those of an operation. choose: see ``rewrites``."""
    steps = replace(case.steps, files=case.steps.files[: case.port.first + 1])
    for read, captured in targets(case):

        def value(rewrite: Rewrite, read: Results = read) -> Tensor | None:
            mistake = changing(step, rewrite)
            with suppress(Exception):
                return read(list(within(steps, mistake.around).drive())[-1])
            return None

        for rewrite, _, _ in fitted(operations, which, captured, value, choose):
            yield changing(step, rewrite)


def _factor(operation: Operation) -> Iterator[Setting]:
    """A factor of a loss."""
    if math.prod(operation.shape) == 1:
        says = "a factor of a loss"
        yield Setting("scale", says, 1.0, lambda factor: with_result(operation, lambda loss: loss * factor))


def targets(case: Case) -> Iterator[tuple[Results, Tensor]]:
    """What a number is fitted to, one after the other: what reads it in a step, and its value in the port.

    The weights that differ; and the losses that differ, because the update of an optimizer such as Adam hardly shows a factor.
    """
    port, number = case.port, case.port.first
    floors, exact, found = port.loss_floors[number], port.exact_losses[number], port.losses[number]
    if port.blamed:

        def weights(after: Arrays) -> Tensor:
            return torch.from_numpy(np.concatenate([after[name].ravel() for name in port.blamed])).double()

        yield (lambda taken: weights(taken.after)), weights(port.found[number])
    differing = [name for name, loss in found.items() if abs(loss - exact[name]) > OWN_EQUAL * floors[name]]
    if differing:

        def losses(values: Mapping[str, float]) -> Tensor:
            return torch.tensor([values[name] for name in differing], dtype=torch.float64)

        yield (lambda taken: losses(taken.losses)), losses(found)


def _of_gradients(operations: Sequence[Operation]) -> Iterator[Rewrite]:
    """The changes of losses, and the results through which no gradient flows."""
    for operation in operations:
        for change in of_losses(operation):
            yield Rewrite(change.kind, change.says, {operation: change.compute})
    for operation in operations:
        if operation.name == "detach":
            says = "lets a gradient through where torch.py detaches a tensor"
            yield Rewrite("detach", says, {operation: lambda args, _kwargs: args[0]})
        elif operation.sources and math.prod(operation.shape) > 1:
            says = "stops the gradient of a tensor (detach or stop_gradient), which torch.py does not do"
            yield Rewrite("stopped gradient", says, {operation: with_result(operation, Tensor.detach)})


@contextmanager
def _inferring(name: str, call: int, model: nn.Module) -> Iterator[None]:
    """Let the batch norms of a module use their running statistics in one of its calls."""
    found = norms(model.get_submodule("" if name == "model" else name))

    def set_mode(called: str, number: int, training: bool) -> None:
        for norm in found if (called, number) == (name, call) else ():
            norm.train(training)

    def before(called: str, number: int, _args: Any) -> None:
        set_mode(called, number, False)

    def after(called: str, number: int, _result: Any) -> None:
        set_mode(called, number, True)

    with calls(model, before, after):
        yield


@contextmanager
def _stopped(name: str, call: int, given: bool, model: nn.Module) -> Iterator[None]:
    """Stop the gradient at the input of one call of a module, or at its output."""

    def change(called: str, number: int, tensors: Any) -> Any:
        return map_tensors(tensors, Tensor.detach) if (called, number) == (name, call) else None

    with calls(model, before=change if given else None, after=None if given else change):
        yield
