"""The operations of a user's own training step, recorded once, and steps in which some of them compute otherwise."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from ..float64.layer_kinds import BATCH_NORMS
from ..float64.own_step import Batch
from ..float64.replaced import hooked, replaced
from ..float64.source import innermost_line
from ..float64.structures import flatten
from ..replay.operation import Compute, Operation
from ..replay.tape import Tape, spelled
from .faults.glue.operation import Rewrite
from .own_mistake import Case, Mistake, within

MOST_OPERATIONS = 60  # of a step, before its backward passes; the last ones are changed
MOST_EXECUTIONS = 400  # of one instruction elsewhere in a step: with more, its operations are not changed

Place = tuple[str, int, str]  # line and instruction of the user's code, and the name of the function that it calls


@dataclass(frozen=True)
class Earlier:
    """What an operation of a step returned in an earlier call. call: which one of the same place."""

    call: int


Computes = Mapping[Place, Mapping[int, Compute | Earlier]]  # which call of a place in a step computes otherwise


class Step:
    """The first step of the reference.

    operations: those that lead from the outputs of the model's modules to what a backward pass begins with, in order.
    others: all others of the user's own code: in the model, in an optimizer, before the model, in hooks.
    calls: (name of a module, which of its calls in the step). normalised: the modules that have batch norms.
    batch: what the step was given.
    """

    batch: Batch

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.others: list[Operation] = []
        self.calls: list[tuple[str, int]] = []
        self.normalised: set[str] = set()
        self.places: dict[Operation, tuple[Place, int]] = {}  # of an operation, and which call of this place it is

    def given(self, batch: Batch) -> Batch:
        """Note the batch of the step."""
        self.batch = batch
        return batch

    def recorded(self, every: list[Operation], behind: set[int]) -> None:
        """Take over the operations of the step. behind: numbers of those that lead to a backward pass."""
        counts = Counter[Place]()
        for operation in every:
            place = (operation.line, operation.instruction, operation.name)
            self.places[operation] = place, counts[place]
            counts[place] += 1
        self.operations = [each for each in every if each.number in behind][-MOST_OPERATIONS:]
        few = {each for each, (place, _) in self.places.items() if counts[place] <= MOST_EXECUTIONS}
        self.others = [each for each in every if each.number not in behind and each in few]


def traced(case: Case) -> Step:
    """Make the reference's first step, and record it."""
    step = Step()
    first = replace(case.steps, files=case.steps.files[:1])
    for _ in within(first, partial(_recording, step), step.given).drive():
        pass
    return step


@contextmanager
def _recording(step: Step, model: nn.Module) -> Iterator[None]:
    tape, behind, inside = Tape(keep=True), set[int](), list[str]()  # inside: a backward pass, or a call of a module

    def noting(function: Any) -> Any:
        @wraps(function)
        def noted(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if inside:
                return function(tensors, *args, **kwargs)
            for tensor in flatten(tensors):
                behind.update(each.number for each in tape.behind(tensor))
            inside.append("backward")
            try:
                return function(tensors, *args, **kwargs)
            finally:
                inside.clear()

        return noted

    step.normalised = {name or "model" for name, each in model.named_modules() if norms(each)}

    def calling(name: str, _call: int, _args: Any) -> None:
        inside.append(name)

    def called(name: str, call: int, result: Any) -> None:
        inside.clear()
        step.calls.append((name, call))
        for tensor in flatten(result):
            tape.settle(tensor)

    with ExitStack() as stack:
        stack.enter_context(replaced(Tensor, backward=noting(Tensor.backward)))
        stack.enter_context(replaced(torch.autograd, grad=noting(torch.autograd.grad)))
        for each in (calls(model, calling, called), without_updates(tape), tape):
            stack.enter_context(each)
        yield
    step.recorded([each for each in tape.kept if each.line], behind)


@contextmanager
def without_updates(tape: Tape) -> Iterator[None]:
    """Keep no operation of torch's own optimizers, which are no code of the user's."""

    def keep(optimizer: Any, whether: bool) -> None:
        tape.keep = whether or not type(optimizer).__module__.startswith("torch.optim")

    hooks = [
        register_optimizer_step_pre_hook(lambda optimizer, *_: keep(optimizer, False)),
        register_optimizer_step_post_hook(lambda optimizer, *_: keep(optimizer, True)),
    ]
    with hooked(hooks):
        yield


@contextmanager
def calls(
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


def norms(module: nn.Module) -> list[nn.Module]:
    """The batch norms of a module."""
    return [each for each in module.modules() if isinstance(each, BATCH_NORMS)]


# -- changes of operations ---------------------------------------------------------------------------------------------


def changing(step: Step, rewrite: Rewrite, earlier: Mapping[Operation, int] | None = None) -> Mistake:
    """The mistake that changes operations of each step.

    earlier: operation -> the earlier call of its place whose result it returns; in place of what the rewrite computes.
    """
    computes: dict[Place, dict[int, Compute | Earlier]] = defaultdict(dict)
    for operation, compute in rewrite.computes.items():
        place, call = step.places[operation]
        computes[place][call] = compute if earlier is None else Earlier(earlier[operation])
    lines = list(dict.fromkeys(operation.line for operation in rewrite.computes))
    says = f"the step {rewrite.says}".replace("the reference", "torch.py")
    says += f" ({', '.join(lines)})" if len(lines) < 4 else ""
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
        self.names = {place[2] for place in computes}
        self.results: dict[Place, list[Any]] = {
            place: [] for place, of in computes.items() if any(isinstance(each, Earlier) for each in of.values())
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        name, in_place = spelled(func, named)
        place = (*innermost_line(__file__), name) if name in self.names else None
        if place is None or place not in self.computes:
            return func(*args, **named)
        call = self.counts[place]
        self.counts[place] += 1
        compute = self.computes[place].get(call)
        if isinstance(compute, Earlier):
            result = self.results[place][compute.call]
        elif compute is None:
            result = func(*args, **named)
        elif in_place:
            result = compute((args[0].clone(), *args[1:]), named)
            result = args[0].copy_(result)
        else:
            result = compute(args, named)
        if place in self.results:
            self.results[place].append(result)
        return result
