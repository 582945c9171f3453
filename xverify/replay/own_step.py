"""A user's own training step in float64, and the noise floor of what it does.

The step is driven from given weights: before each step the weights are set to those of the file of that step, and all else, such
as the state of optimizers, is what the steps before it have left. Two frameworks that are driven over the same files start every
step from equal weights, and from states that differ by no more than rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import Failed
from ..float64.arithmetic import float64_arithmetic
from ..float64.perturbation import Noise
from ..float64.perturbed import perturbed_arithmetic
from ..float64.precision import SMALLEST
from ..float64.structures import as_float32, as_float64
from ..float64.training_step import perturbed_layers
from ..framework.own_step import Step, Update, numbered
from ..verdict.limits import UNIT, growth
from ..verdict.own_step import OwnStepTruth
from ..weights import npz
from ..weights.canonical import Array

REPEATS = 2  # perturbed drives; with the error of float32 the floor has three measurements
REPEATED = 1e-7  # two float64 runs of one step that differ by more than this share of a change are random

Batch = Mapping[str, Tensor]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Code:
    """The user's model and step.

    build: makes a model in training mode, without dropout; its argument is whether it is in float64.
    start: makes a state for a model that has its weights, of which a state may hold a copy; returns the step with it, and the
        optimizers of the state by name.
    load: sets the weights of a model to those of a file. read: the weights of a model by canonical name.
    watch: the context that lists the updates of a model.
    names: name of a parameter in updates -> its canonical name.
    """

    build: Callable[[bool], nn.Module]
    start: Callable[[nn.Module], tuple[Step, dict[str, Any]]]
    load: Callable[[nn.Module, str], None]
    read: Callable[[nn.Module], Arrays]
    watch: Callable[[nn.Module], AbstractContextManager[list[Update]]]
    names: Mapping[str, str]


@dataclass(frozen=True)
class Taken:
    """One step that was made.

    losses: as the step returned them. after: the weights after it. changes: these minus the weights before it.
    gradients: by "n/name", see framework.own_step.numbered. optimizers, rates: see OwnStepTruth.
    backwards: the values of the losses whose backward pass came before the update of a parameter.
    """

    losses: dict[str, float]
    after: Arrays
    changes: Arrays
    gradients: Arrays
    optimizers: dict[str, str] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    backwards: dict[str, list[float]] = field(default_factory=dict)


Optimizers = Mapping[str, Any]  # by name
# What changes the code of a drive: a context in which the steps are made, for the model and the optimizers.
Change = Callable[[nn.Module, Optimizers], AbstractContextManager[object]]


def drive(
    code: Code,
    files: Sequence[str],
    batches: Sequence[Batch],
    float64: bool = True,
    noise: Noise | None = None,
    times: float = 1.0,
    change: Change | None = None,
) -> Iterator[Taken]:
    """Make a step from the weights of each file, with a new model and a new state.

    noise: perturbs weights, inputs, layers and constants, ``times`` as much as rounding does. change: of the code.
    """
    model = code.build(float64)
    _set_weights(code, model, files[0], noise, times)
    with _arithmetic(float64, None, times):
        step, optimizers = code.start(model)
    with ExitStack() as contexts:
        if change is not None:
            contexts.enter_context(change(model, optimizers))
        if noise is not None:
            contexts.enter_context(_perturbed_constants(optimizers, noise, times))
        for number, file in enumerate(files):
            _set_weights(code, model, file, noise, times)
            batch = {name: _given(tensor, float64, noise, times) for name, tensor in batches[number].items()}
            layers = perturbed_layers(model, noise, times) if noise is not None else nullcontext()
            before = code.read(model)
            with (
                _arithmetic(float64, noise, times),
                layers,
                code.watch(model) as updates,
                _noted_backwards(updates) as backwards,
            ):
                returned = step(batch)
            losses = {name: float(value) for name, value in returned.items()}
            own = [Update(each.optimizer, _renamed(each.gradients, code.names)) for each in updates]
            yield _taken(losses, before, code.read(model), own, optimizers, backwards)


def _set_weights(code: Code, model: nn.Module, file: str, noise: Noise | None, times: float) -> None:
    """Set the weights to those of a file. noise: perturbs them, ``times`` as much as rounding does."""
    code.load(model, file)
    if noise is not None:
        for parameter in model.parameters():
            noise.perturb_(parameter.data, times * UNIT)


def _renamed(gradients: Mapping[str, Array], names: Mapping[str, str]) -> Arrays:
    return {names[name]: array for name, array in gradients.items()}


def _arithmetic(float64: bool, noise: Noise | None, times: float) -> AbstractContextManager[None]:
    """The arithmetic of a step. Every operation of the user's code is perturbed where the noise is that of float32."""
    if not float64:
        return nullcontext()
    return perturbed_arithmetic(noise) if noise is not None and times == 1.0 else float64_arithmetic()


def _given(tensor: Tensor, float64: bool, noise: Noise | None, times: float) -> Tensor:
    """A tensor of a batch in the arithmetic of a drive."""
    if not float64:
        return as_float32(tensor)
    exact = as_float64(tensor)
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
        rates = [group.get("lr") for group in getattr(update.optimizer, "param_groups", ())]
        for name in update.gradients:
            taken.optimizers[name] = names.get(id(update.optimizer), type(update.optimizer).__name__)
            if len(rates) == 1 and isinstance(rates[0], float):
                taken.rates[name] = rates[0]
            taken.backwards.setdefault(name, []).extend(value for place, value in backwards if place == index)
    return taken


@contextmanager
def _noted_backwards(updates: Sequence[Update]) -> Iterator[list[tuple[int, float]]]:
    """The value of every tensor whose backward pass is made, with the number of updates before it."""
    found: list[tuple[int, float]] = []
    backward = Tensor.backward

    def noted(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        found.append((len(updates), float(tensor.detach().sum())))
        backward(tensor, *args, **kwargs)

    Tensor.backward = noted
    try:
        yield found
    finally:
        Tensor.backward = backward


@contextmanager
def _perturbed_constants(optimizers: Optimizers, noise: Noise, times: float) -> Iterator[None]:
    """Let the optimizers compute with constants as float32 has them.

    A power of a beta in float32 is off by one unit roundoff, which 1 - beta**t multiplies. It is a factor of the learning rate.
    """
    hooks, rates, steps = [], dict[int, float](), dict[int, int]()

    def sign() -> float:
        return float(torch.randint(2, (1,), generator=noise.generator)) * 2 - 1

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        steps[id(optimizer)] = steps.get(id(optimizer), 0) + 1
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

    for optimizer in optimizers.values():
        hooks += [optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


# -- states and truth -------------------------------------------------------------------------------------------------


def trajectory(code: Code, start: str, batches: Sequence[Batch], folder: Path) -> list[str]:
    """Train in float32 from the weights of a file. Returns the file of the weights before each step. Raises Failed for NaN."""
    files = [start]
    model = code.build(False)
    code.load(model, start)
    step, _ = code.start(model)
    for number, batch in enumerate(batches):
        losses = step({name: as_float32(tensor) for name, tensor in batch.items()})
        _check_losses({name: float(value) for name, value in losses.items()}, number)
        if number + 1 < len(batches):
            path = folder / f"own-{number + 1}.npz"
            after = {name: array.astype(np.float32) for name, array in code.read(model).items()}
            _check_finite(after, f"weight {{name}} has NaN or infinity after step {number}")
            npz.save_file(after, path)
            files.append(str(path))
    return files


def _check_losses(losses: Mapping[str, float], number: int) -> None:
    broken = next((name for name, loss in losses.items() if not math.isfinite(loss)), None)
    if broken is not None:
        raise Failed(f"the reference's own step is not finite: loss {broken!r} is {losses[broken]} at step {number}")


def _check_finite(arrays: Mapping[str, Array], says: str) -> None:
    broken = next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)
    if broken is not None:
        raise Failed(f"the reference's own step is not finite: {says.format(name=broken)}")


def truths(
    code: Code,
    files: Sequence[str],
    batches: Sequence[Batch],
    folder: Path,
    seed: int,
    repeats: int,
    times: float = 1.0,
) -> tuple[list[OwnStepTruth], str]:
    """The exact steps from the weights of these files, and where two runs of them differ; "" when they do not.

    The arrays are written to ``exact_file`` of each step: "after/name", "change/name" and "gradient/key"; and their noise to
    ``noise_file``.
    """
    found: list[_Measured] = []
    for number, taken in enumerate(drive(code, files, batches)):
        _check_losses(taken.losses, number)
        _check_finite(taken.after, f"weight {{name}} has NaN or infinity after step {number}")
        found.append(_Measured(taken, folder, number, summed=_summed(batches[number])))
    if not any(size for name, size in found[0].sizes.items() if not name.endswith(("running_mean", "running_var"))):
        raise Failed(
            "train_step of the reference changes no weight: compute the gradients, and call the step of an optimizer that has "
            "the model's parameters"
        )
    for number, taken in enumerate(drive(code, files, batches)):
        place = found[number].first_change(taken)
        if place:
            return [each.truth() for each in found], f"{place}, step {number}"
    _measure(found, code, files, batches, seed, repeats, times)
    return [each.truth() for each in found], ""


def write_changed(
    code: Code, files: Sequence[str], batches: Sequence[Batch], folder: Path, change: Change, seed: int, repeats: int
) -> None:
    """Write the exact steps of changed code and their noise, as ``truths`` does."""
    found = [
        _Measured(taken, folder, number, summed=_summed(batches[number]))
        for number, taken in enumerate(drive(code, files, batches, change=change))
    ]
    _measure(found, code, files, batches, seed, repeats, change=change)


def _measure(
    found: Sequence[_Measured],
    code: Code,
    files: Sequence[str],
    batches: Sequence[Batch],
    seed: int,
    repeats: int,
    times: float = 1.0,
    change: Change | None = None,
) -> None:
    """Add the differences of the steps in float32 and of perturbed steps to the exact ones."""
    for number, taken in enumerate(drive(code, files, batches, float64=False, change=change)):
        found[number].add(taken)
    noise = Noise(seed)
    for _ in range(repeats):
        for number, taken in enumerate(drive(code, files, batches, noise=noise, times=times, change=change)):
            found[number].add(taken, repeats)


def exact_file(folder: Path, number: int) -> Path:
    """The file of the arrays of an exact step."""
    return folder / f"own-exact-{number}.npz"


def arrays_of(taken: Taken) -> Arrays:
    """The arrays of a step in its file: "after/name", "change/name" and "gradient/n/name"."""
    arrays = {f"after/{name}": array for name, array in taken.after.items()}
    arrays |= {f"change/{name}": array for name, array in taken.changes.items()}
    return arrays | {f"gradient/{key}": array for key, array in taken.gradients.items()}


def _summed(batch: Batch) -> int:
    """The number of values that a loss may sum up."""
    return max(tensor.numel() for tensor in batch.values())


def noise_file(folder: Path, number: int) -> Path:
    """The file of the rms of the noise of every value of an exact step, by the name of the array after "noise/"."""
    return folder / f"own-noise-{number}.npz"


class _Measured:
    """An exact step, whose arrays are in a file, and the differences of other steps from it.

    folder, number: see ``exact_file``. summed: number of values that a loss sums.
    """

    def __init__(self, exact: Taken, folder: Path, number: int, summed: int) -> None:
        self.exact = Taken(exact.losses, {}, {}, {}, exact.optimizers, exact.rates, exact.backwards)
        self.path, self.noise, self.summed = exact_file(folder, number), noise_file(folder, number), summed
        npz.save_file(arrays_of(exact), self.path)
        self.sizes = {name: _rms(array) for name, array in exact.changes.items()}
        self.whole = {name: _rms(array) for name, array in exact.after.items()}
        self.gradient_sizes = {key: _rms(array) for key, array in exact.gradients.items()}
        self.losses = dict.fromkeys(exact.losses, 0.0)
        # The rounding of the results themselves: of a change, that of the weight and of two operations. What is not changed, such
        # as the rows of an embedding that a batch does not use, is not rounded.
        noise = {
            f"change/{name}": np.hypot(exact.after[name] * (UNIT / math.sqrt(3)), 2 * UNIT * array)
            for name, array in exact.changes.items()
        }
        noise |= {f"gradient/{key}": np.abs(array) * (UNIT / math.sqrt(3)) for key, array in exact.gradients.items()}
        least, arrays = SMALLEST[torch.float32], arrays_of(exact)
        self._write({key: (each + least) * (arrays[key] != 0) for key, each in noise.items()})

    def _write(self, noise: Arrays) -> None:
        npz.save_file({f"noise/{key}": np.abs(array).astype(np.float32) for key, array in noise.items()}, self.noise)

    def first_change(self, again: Taken) -> str:
        """Where another float64 run of the step differs: a loss or a weight; "" when it does not."""
        for name, loss in again.losses.items():
            if abs(loss - self.exact.losses.get(name, math.nan)) > REPEATED * abs(loss):
                return f"loss {name!r}"
        exact = npz.OnDisk(self.path)
        for name, array in again.changes.items():
            if _rms(array - exact[f"change/{name}"]) > REPEATED * self.sizes[name] + 1e-12 * self.whole[name]:
                return name
        return ""

    def add(self, taken: Taken, repeats: int = 1) -> None:
        """Add a step. repeats: number of steps of the same kind, whose mean squares are added."""
        exact, noise = npz.OnDisk(self.path), npz.OnDisk(self.noise)
        for name in self.losses:
            apart = abs(taken.losses[name] - self.exact.losses[name])
            self.losses[name] = max(self.losses[name], apart if math.isfinite(apart) else math.inf)
        found = {f"change/{name}": array for name, array in taken.changes.items()}
        found |= {f"gradient/{key}": array for key, array in taken.gradients.items()}
        added = dict[str, Array]()
        for name in noise:
            key = name.removeprefix("noise/")
            error = (found[key] - exact[key]) / math.sqrt(repeats) if key in found else np.float32(math.inf)
            added[key] = np.hypot(noise[name], error)  # no squares, of which those of small values would be zero
        self._write(added)

    def truth(self) -> OwnStepTruth:
        """The record of the step."""
        exact, rounding = self.exact, growth(self.summed) * UNIT / math.sqrt(3)
        noise = npz.OnDisk(self.noise)
        return OwnStepTruth(
            losses=exact.losses,
            loss_floors={name: max(self.losses[name], rounding * abs(loss)) for name, loss in exact.losses.items()},
            sizes=self.sizes,
            floors={name: _rms(noise[f"noise/change/{name}"]) for name in self.sizes},
            gradient_sizes=self.gradient_sizes,
            gradient_floors={key: _rms(noise[f"noise/gradient/{key}"]) for key in self.gradient_sizes},
            optimizers=exact.optimizers,
            rates=exact.rates,
            trained_by={
                name: found for name, values in exact.backwards.items() if (found := _named(values, exact.losses))
            },
        )


def _named(values: Sequence[float], losses: Mapping[str, float]) -> str:
    """The names of the returned losses that have one of these values."""
    return ", ".join(
        name for name, loss in losses.items() if any(abs(value - loss) <= 1e-12 * abs(loss) for value in values)
    )


def _square(array: Array) -> float:
    """The mean square; infinity when a value is not finite."""
    found = float(np.mean(np.square(array, dtype=np.float64)))
    return found if math.isfinite(found) else math.inf


def _rms(array: Array) -> float:
    return math.sqrt(_square(array))
