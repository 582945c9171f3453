"""A user's own training step, in float64, in float32 or perturbed.

The step is driven from given weights: before each step the weights are set to those of the file of that step, and all else, such
as the state of optimizers, is what the steps before it have left. Two frameworks that are driven over the same files start every
step from equal weights, and from states that differ by no more than rounding.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import Failed
from ..framework.own_state import Held, StateReader
from ..framework.own_step import Step, Update, numbered
from ..verdict.limits import UNIT
from ..weights import npz
from ..weights.canonical import Array
from ..workload.probe import STATISTICS
from .arithmetic import default_of_float64, float64_arithmetic
from .operations import perturbed_arithmetic
from .own_precision import OwnPrecision
from .perturbation import Noise
from .replaced import hooked, replaced
from .structures import as_float32, as_float64
from .training_step import perturbed_layers

SEARCH_SECONDS = 2.0  # that the reference may train to find a further step that changes a parameter
Batch = Mapping[str, Tensor]
Arrays = dict[str, Array]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Code:
    """The user's model and step.

    build: makes a model in training mode, without dropout; its argument is whether it is in float64.
    start: makes a state for a model that has its weights, of which a state may hold a copy; returns the step with it, the
        optimizers of the state by name, and what reads the state.
    load: sets the weights of a model to those of a file. read: the weights of a model by canonical name.
    watch: the context that lists the updates of a model.
    names: name of a parameter in updates -> its canonical name.
    """

    build: Callable[[bool], nn.Module]
    start: Callable[[nn.Module], tuple[Step, dict[str, Any], StateReader]]
    load: Callable[[nn.Module, str], None]
    read: Callable[[nn.Module], Arrays]
    watch: Callable[[nn.Module], AbstractContextManager[list[Update]]]
    names: Mapping[str, str]


@dataclass(frozen=True)
class Taken:
    """One step that was made.

    losses: as the step returned them. after: the weights after it. changes: these minus the weights before it.
    gradients: by "n/name", see framework.own_step.numbered. optimizers: see OwnStepTruth.
    backwards: the values of the losses whose backward pass came before the update of a parameter.
    held: what the state holds; its arrays must be read before the next step.
    """

    losses: dict[str, float]
    after: Arrays
    changes: Arrays
    gradients: Arrays
    optimizers: dict[str, str] = field(default_factory=dict)
    backwards: dict[str, list[float]] = field(default_factory=dict)
    held: Held = field(default_factory=lambda: Held((), {}))


Optimizers = Mapping[str, Any]  # by name
# What changes the code of a drive: a context in which the steps are made, for the model and the optimizers.
Change = Callable[[nn.Module, Optimizers], AbstractContextManager[object]]


@dataclass(frozen=True)
class Steps:
    """The steps of a user's code.

    files: the weights before each step. batches: one for each step. precision: what the code has shown of its precision.
    plain: whether the code is known to ask for no float32, so that its arithmetic in float64 needs no change.
    """

    code: Code
    files: Sequence[str]
    batches: Sequence[Batch]
    precision: OwnPrecision = field(default_factory=OwnPrecision)
    plain: bool = False

    def drive(
        self,
        float64: bool = True,
        noise: Noise | None = None,
        times: float = 1.0,
        change: Change | None = None,
        started: Callable[[Held], None] = lambda _: None,
        inside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Iterator[Taken]:
        """Make a step from the weights of each file, with a new model and a new state.

        In float64, the step does not compute in a lower precision where its code asks for it.

        noise: perturbs weights, inputs, layers and constants, ``times`` as much as rounding does. change: of the code.
        started: called with what the state holds before the first step. inside: makes the context of ``train_state``, and that of
        every step.
        """
        code, model = self.code, self.code.build(float64)
        _set_weights(code, model, self.files[0], noise, times)
        with inside(), self._arithmetic(float64, None, times):
            step, optimizers, reader = code.start(model)
        started(reader.read())
        with ExitStack() as contexts:
            if change is not None:
                contexts.enter_context(change(model, optimizers))
            if noise is not None:
                contexts.enter_context(_perturbed_constants(optimizers, noise, times))
            for number, (file, tensors) in enumerate(zip(self.files, self.batches)):
                _set_weights(code, model, file, noise, times)
                batch = {name: _given(tensor, float64, noise, times) for name, tensor in tensors.items()}
                layers = perturbed_layers(model, noise, times) if noise is not None else nullcontext()
                before = code.read(model)
                with (
                    inside(),
                    self._arithmetic(float64, noise, times),
                    self.precision.left_out(number) if float64 else nullcontext(),
                    layers,
                    code.watch(model) as updates,
                    _noted_backwards(updates) as backwards,
                ):
                    returned = step(batch)
                losses = {name: float(value) for name, value in returned.items()}
                own = [
                    replace(each, gradients={code.names[name]: array for name, array in each.gradients.items()})
                    for each in updates
                ]
                yield replace(_taken(losses, before, code.read(model), own, optimizers, backwards), held=reader.read())

    def optimizers(self) -> dict[str, Any]:
        """The optimizers of a new state, by name."""
        model = self.code.build(True)
        self.code.load(model, self.files[0])
        return self.code.start(model)[1]

    def lowered(self, precision: str) -> Steps:
        """The same steps with matrix products in a lower precision, as under autocast."""
        lower = replace(self, precision=OwnPrecision(autocast=precision))
        for _ in lower.drive(float64=False, inside=lower.precision.noted):
            pass
        lower.precision.made, lower.precision.scales = self.precision.made, self.precision.scales
        return lower

    def _arithmetic(self, float64: bool, noise: Noise | None, times: float) -> AbstractContextManager[object]:
        """The arithmetic of a step. Every operation of the user's code is perturbed where the noise is that of float32."""
        if not float64:
            return self.precision.arithmetic()
        if noise is not None and times == 1.0:
            return perturbed_arithmetic(noise, self.precision.units, lower=True)
        return default_of_float64() if self.plain else float64_arithmetic(lower=True)

    def trajectory(self, folder: Path, steps: int, updates: int) -> list[str]:
        """Train in float32 from the weights of the first file, which is the only one, and note the precision of the code.

        Returns the file of the weights before each step. Raises Failed for NaN, and where no step changes a parameter.

        steps: their number; the batches are as many as may be made. updates: steps that must change a parameter. With fewer, more
        steps are made: for the first such step up to the last batch, for another one until SEARCH_SECONDS are over.
        """
        files, model, changing, begun = [self.files[0]], self.code.build(False), list[int](), time.monotonic()
        self.code.load(model, self.files[0])
        step, _, _ = self.code.start(model)
        before = self.code.read(model)
        for number, batch in enumerate(self.batches):
            slow = bool(changing) and time.monotonic() - begun > SEARCH_SECONDS
            if number >= steps and (slow or len(changing) >= updates):
                break
            if number:
                files.append(str(folder / f"own-{number}.npz"))
                npz.save_file(before, Path(files[-1]))
            with self.precision.noted():
                losses = step({name: _given(tensor, False, None, 1.0) for name, tensor in batch.items()})
            check_losses({name: float(value) for name, value in losses.items()}, number)
            after = {name: array.astype(np.float32) for name, array in self.code.read(model).items()}
            check_weights(after, number)
            if any(not np.array_equal(array, before[name]) for name, array in parameters(after).items()):
                changing.append(number)
            before = after
        if not changing:
            raise Failed(self.precision.all_skipped(len(files)) or no_update(len(files)))
        return files[: max(steps, changing[-1] + 1)]


def parameters(weights: Mapping[str, Value]) -> dict[str, Value]:
    """What belongs to the weights that are no running statistics. weights: by canonical name."""
    return {name: value for name, value in weights.items() if not name.endswith(STATISTICS)}


def no_update(steps: int) -> str:
    """Why a step of the reference cannot be used that changes no parameter when it is called this many times."""
    return (
        f"train_step of the reference changes no weight in {steps} {'steps' if steps > 1 else 'step'}: compute the gradients, and "
        "call the step of an optimizer that has the model's parameters; where it makes an update in every k-th call only, give 2 k "
        "steps or more with --steps"
    )


def check_losses(losses: Mapping[str, float], number: int) -> None:
    """Raise Failed where a loss of a step is NaN or infinite."""
    broken = next((name for name, loss in losses.items() if not math.isfinite(loss)), None)
    if broken is not None:
        raise Failed(f"the reference's own step is not finite: loss {broken!r} is {losses[broken]} at step {number}")


def check_weights(arrays: Mapping[str, Array], number: int) -> None:
    """Raise Failed where a weight after a step has NaN or infinity."""
    broken = next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)
    if broken is not None:
        raise Failed(f"the reference's own step is not finite: weight {broken} has NaN or infinity after step {number}")


def _set_weights(code: Code, model: nn.Module, file: str, noise: Noise | None, times: float) -> None:
    """Set the weights to those of a file. noise: perturbs them, ``times`` as much as rounding does."""
    code.load(model, file)
    if noise is not None:
        for parameter in model.parameters():
            noise.perturb_(parameter.data, times * UNIT)


def _given(tensor: Tensor, float64: bool, noise: Noise | None, times: float) -> Tensor:
    """A copy of a tensor of a batch in the arithmetic of a drive. The code may change it, also by ``requires_grad_``."""
    if not float64:
        return as_float32(tensor).clone()
    exact = as_float64(tensor).clone()
    return noise.given(exact, times * UNIT) if noise is not None and tensor.is_floating_point() else exact


def _taken(
    losses: dict[str, float],
    before: Arrays,
    after: Arrays,
    updates: Sequence[Update],
    optimizers: Optimizers,
    backwards: Sequence[tuple[int, float]],
) -> Taken:
    names = {id(optimizer): name for name, optimizer in optimizers.items()}
    changes = {name: array.astype(np.float64) - before[name] for name, array in after.items()}
    taken = Taken(losses, after, changes, numbered([update.gradients for update in updates]))
    for index, update in enumerate(updates):
        for name in update.gradients:
            taken.optimizers[name] = names.get(id(update.optimizer), type(update.optimizer).__name__)
            taken.backwards.setdefault(name, []).extend(value for place, value in backwards if place == index)
    return taken


@contextmanager
def _noted_backwards(updates: Sequence[Update]) -> Iterator[list[tuple[int, float]]]:
    """The value of every tensor whose backward pass is made, with the number of updates before it."""
    found: list[tuple[int, float]] = []
    backward = Tensor.backward

    @wraps(backward)
    def noted(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        found.append((len(updates), float(tensor.detach().sum())))
        backward(tensor, *args, **kwargs)

    with replaced(Tensor, backward=noted):
        yield found


@contextmanager
def _perturbed_constants(optimizers: Optimizers, noise: Noise, times: float) -> Iterator[None]:
    """Let the optimizers compute with constants as float32 has them.

    A power of a beta in float32 is off by one unit roundoff, which 1 - beta**t multiplies. It is a factor of the learning rate.
    """
    rates, steps = dict[int, float](), Counter[int]()

    def sign() -> float:
        return float(torch.randint(2, (1,), generator=noise.generator)) * 2 - 1

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        steps[id(optimizer)] += 1
        for group in optimizer.param_groups:
            error = 1.0 if "betas" not in group else 0.0
            for beta, power in zip(group.get("betas", ()), (1.0, 0.5)):
                left = 1 - beta ** steps[id(optimizer)]
                error += sign() * power / left if left > UNIT else 0.0
            if isinstance(group.get("lr"), float):
                rates[id(group)] = group["lr"]
                group["lr"] *= 1 + times * UNIT * error

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        for group in optimizer.param_groups:
            if id(group) in rates:
                group["lr"] = rates[id(group)]

    registered = [each.register_step_pre_hook(before) for each in optimizers.values()]
    with hooked([*registered, *(each.register_step_post_hook(after) for each in optimizers.values())]):
        yield
