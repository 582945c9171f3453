"""Mistakes in what a user's own training step computes around its model: its losses, and where it stops a gradient.

The operations of the step since the outputs of the model are recorded once, and each mistake changes one of them, or one line. Most
changes are those of glue code.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..float64.layer_kinds import BATCH_NORMS
from ..float64.replaced import hooked, replaced
from ..float64.source import innermost_line
from ..float64.structures import flatten, map_tensors
from ..replay.operation import Compute, Operation
from ..replay.tape import Tape
from .faults.glue.catalogue import rewrites
from .faults.glue.losses import losses as of_losses
from .faults.glue.operation import Rewrite, with_result
from .faults.glue.settings import Setting, settings
from .glue_fitting import fitted
from .own_mistake import Arrays, Case, Mistake, within
from .own_statistics import with_biased_variance
from .own_updates import unchanged

MOST_OPERATIONS = 60  # of a step, before its backward passes; the last ones are changed

Place = tuple[str, int]  # line and instruction of the user's code
Computes = Mapping[Place, Mapping[int, Compute]]  # which call of an instruction in a step computes otherwise


def losses(case: Case) -> Iterator[Mistake]:
    """What the step computes around its model in another way, with usual faults."""
    step = _traced(case)
    for rewrite in (*_of_gradients(step.operations), *rewrites(step.operations)):
        yield _mistake(step, rewrite)
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
    return _fitted(case, settings)


def factors(case: Case) -> Iterator[Mistake]:
    """Factors of losses that torch.py does not have, fitted to what the port's steps do."""
    return _fitted(case, _factor)


def _fitted(case: Case, which: Callable[[Operation], Iterator[Setting]]) -> Iterator[Mistake]:
    """Numbers that are fitted to what the port's steps do. which: the numbers of an operation."""
    step, port = _traced(case), case.port
    captured = _results(case, port.found[port.first], port.losses[port.first])
    steps = replace(case.steps, files=case.steps.files[: port.first + 1])

    def value(rewrite: Rewrite) -> Tensor | None:
        mistake = _mistake(step, rewrite)
        assert mistake.around is not None
        with suppress(Exception):
            taken = list(within(steps, mistake.around).drive())[-1]
            return _results(case, taken.after, taken.losses)
        return None

    for rewrite, _, _ in fitted(step.operations, which, captured, value):
        yield _mistake(step, rewrite)


def _factor(operation: Operation) -> Iterator[Setting]:
    """A factor of a loss."""
    if math.prod(operation.shape) == 1:
        says = "a factor of a loss"
        yield Setting("scale", says, 1.0, lambda factor: with_result(operation, lambda loss: loss * factor))


def _results(case: Case, after: Arrays, losses: Mapping[str, float]) -> Tensor:
    """What a number is fitted to: the weights that differ; where none does, the losses."""
    if not case.port.blamed:
        return torch.tensor([losses[name] for name in sorted(case.port.losses[case.port.first])], dtype=torch.float64)
    return torch.from_numpy(np.concatenate([after[name].ravel() for name in case.port.blamed])).double()


# -- the operations of a step ------------------------------------------------------------------------------------------


class _Step:
    """The operations of the first step before its backward passes, in order, and the calls of the model's own modules.

    calls: (name of a module, which of its calls in the step). normalised: the modules that have batch norms.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.calls: list[tuple[str, int]] = []
        self.normalised: set[str] = set()

    def places(self) -> dict[Operation, tuple[Place, int]]:
        """Where each operation is, and which execution of this instruction it is."""
        counts, found = Counter[Place](), dict[Operation, tuple[Place, int]]()
        for operation in self.operations:
            place = (operation.line, operation.instruction)
            found[operation] = place, counts[place]
            counts[place] += 1
        return found


def _traced(case: Case) -> _Step:
    """Make the reference's first step, and record it."""
    step = _Step()
    first = replace(case.steps, files=case.steps.files[:1])
    for _ in within(first, partial(_recording, step)).drive():
        pass
    step.operations = step.operations[-MOST_OPERATIONS:]
    return step


@contextmanager
def _recording(step: _Step, model: nn.Module) -> Iterator[None]:
    """Record the operations that lead from the outputs of the model's modules to what a backward pass begins with."""
    tape, found, inside = Tape(), dict[int, Operation](), list[str]()  # inside: a backward pass, or a call of a module

    def noting(function: Any) -> Any:
        @wraps(function)
        def noted(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if inside:
                return function(tensors, *args, **kwargs)
            for tensor in flatten(tensors):
                found.update((each.number, each) for each in tape.behind(tensor))
            inside.append("backward")
            try:
                return function(tensors, *args, **kwargs)
            finally:
                inside.clear()

        return noted

    step.normalised = {name or "model" for name, each in model.named_modules() if _norms(each)}

    def calling(name: str, _call: int, _args: Any) -> None:
        inside.append(name)

    def called(name: str, call: int, result: Any) -> None:
        inside.clear()
        step.calls.append((name, call))
        for tensor in flatten(result):
            tape.settle(tensor)

    backward, grad = noting(Tensor.backward), noting(torch.autograd.grad)
    patches = replaced(Tensor, backward=backward), replaced(torch.autograd, grad=grad)
    with _calls(model, calling, called), patches[0], patches[1], tape:
        yield
    step.operations += [found[number] for number in sorted(found) if found[number].line]


@contextmanager
def _calls(
    model: nn.Module,
    before: Callable[[str, int, Any], Any] | None = None,
    after: Callable[[str, int, Any], Any] | None = None,
) -> Iterator[None]:
    """Change the arguments and the results of the modules that a step calls itself, and not those that these call.

    before, after: take the name of a module, which of its calls in the step this is, and the arguments or the result.
    """
    depth, counts = 0, Counter[str]()

    def entering(name: str, _module: nn.Module, args: Any) -> Any:
        nonlocal depth
        depth += 1
        return before(name, counts[name], args) if depth == 1 and before is not None else None

    def leaving(name: str, _module: nn.Module, _args: Any, result: Any) -> Any:
        nonlocal depth
        depth -= 1
        if depth:
            return None
        counts[name] += 1
        return after(name, counts[name] - 1, result) if after is not None else None

    hooks = list[Any]()
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(partial(entering, name or "model")))
        hooks.append(module.register_forward_hook(partial(leaving, name or "model")))
    with hooked(hooks):
        yield


# -- changes of operations ---------------------------------------------------------------------------------------------


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


def _mistake(step: _Step, rewrite: Rewrite) -> Mistake:
    """The mistake that changes operations of each step."""
    places = step.places()
    computes: dict[Place, dict[int, Compute]] = defaultdict(dict)
    for operation, compute in rewrite.computes.items():
        place, call = places[operation]
        computes[place][call] = compute
    lines = list(dict.fromkeys(operation.line for operation in rewrite.computes))
    says = f"the step {rewrite.says}".replace("the reference", "torch.py") + (
        f" ({', '.join(lines)})" if len(lines) < 4 else ""
    )
    return Mistake(rewrite.kind, says, around=partial(_changed, computes))


@contextmanager
def _changed(computes: Computes, _model: nn.Module) -> Iterator[None]:
    with _Changed(computes):
        yield


class _Changed(TorchFunctionMode):
    """Computes some operations of a step otherwise."""

    def __init__(self, computes: Computes) -> None:
        super().__init__()
        self.computes, self.counts = computes, Counter[Place]()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named, place = dict(kwargs or {}), innermost_line(__file__)
        if place in self.computes:
            call = self.counts[place]
            self.counts[place] += 1
            if call in self.computes[place]:
                return self.computes[place][call](args, named)
        return func(*args, **named)


def _norms(module: nn.Module) -> list[nn.Module]:
    return [each for each in module.modules() if isinstance(each, BATCH_NORMS)]


@contextmanager
def _inferring(name: str, call: int, model: nn.Module) -> Iterator[None]:
    """Let the batch norms of a module use their running statistics in one of its calls."""
    norms = _norms(model.get_submodule("" if name == "model" else name))

    def set_mode(called: str, number: int, training: bool) -> None:
        for norm in norms if (called, number) == (name, call) else ():
            norm.train(training)

    def before(called: str, number: int, _args: Any) -> None:
        set_mode(called, number, False)

    def after(called: str, number: int, _result: Any) -> None:
        set_mode(called, number, True)

    with _calls(model, before, after):
        yield


@contextmanager
def _stopped(name: str, call: int, given: bool, model: nn.Module) -> Iterator[None]:
    """Stop the gradient at the input of one call of a module, or at its output."""

    def change(called: str, number: int, tensors: Any) -> Any:
        return map_tensors(tensors, Tensor.detach) if (called, number) == (name, call) else None

    with _calls(model, before=change if given else None, after=None if given else change):
        yield
