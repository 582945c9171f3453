"""One training step in float64: its exact loss, gradients and running statistics, and the noise floor of each.

A noise floor has two parts: the error of the same step in float32, and the change of the exact step when inputs,
weights and every layer's output and gradient are perturbed by as much as float32 rounds. Where the framework computes in a lower
precision, both parts are of that precision: the reference's step is then one under torch's autocast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import methodcaller
from typing import Any

import torch
from torch import Tensor, nn

from ..verdict import limits
from ..verdict.findings import StepTruth
from ..weights.canonical import Array
from ..workload.recipe import micro_batches
from .arithmetic import float64_arithmetic
from .layer_kinds import BATCH_NORMS, COPIES, is_training_norm, leaves, summed_gradient_terms, summed_terms
from .losses import KnownLosses, LossOf, check_targets, cross_entropy_of, loss_in, subtracted, summed_values
from .operations import perturbed_gradients
from .perturbation import Noise
from .precision import SMALLEST
from .replaced import hooked
from .stepping import Models
from .structures import as_float32, as_float64, flatten, map_tensors
from .summed_gradients import error_of_means, rounding_of_sums
from .underflow import finite

REPEATS = 2  # perturbed steps; with the error of float32 the floor has three measurements

Arrays = dict[str, Array]


def step_in_float64(
    models: Models,
    inputs: Sequence[Tensor],
    target: Any,
    repeats: int = REPEATS,
    loss: LossOf = cross_entropy_of,
    known: KnownLosses | None = None,
    parts: int = 1,
) -> tuple[StepTruth, Arrays]:
    """The exact loss, gradients and running statistics of a step, and their noise floors.

    The running statistics of both models are changed.

    target: the last entry of a Batch.
    repeats: number of perturbed steps.
    loss: Framework.loss. known: explains wrong losses; None: nothing does.
    parts: number of micro-batches whose losses are averaged to that of the step.
    Returns the record, and arrays by name: the exact "gradient/PARAMETER" and "statistic/NAME", and the rms of the noise of each
    of their values by the same name after "noise/".
    """
    float64_inputs = [as_float64(tensor) for tensor in inputs]
    start = _running_statistics(models.float64_model)
    with _observed(models) as observed:
        exact = _step(models.float64_model, float64_inputs, target, loss)
    observed.values = summed_values(exact.outputs, target)
    observed.subtracted = subtracted(exact.outputs, target)
    check_targets(loss, exact.outputs, target)
    alternatives = known.alternatives(exact.outputs, target, exact.loss) if known else {}
    differences = _Differences(exact)
    differences.add(_own_step(models, [as_float32(tensor) for tensor in inputs], target, loss))
    noise = models.noise()
    for _ in range(repeats):
        _set_statistics(models.float64_model, start)
        differences.add(_perturbed_step(models.float64_model, float64_inputs, target, noise, loss), repeats)
    differences.round(models.precision.unit, observed.sums)
    accumulated = _loss_of_parts(exact.outputs, target, loss, parts) if parts > 1 else None
    truth = replace(
        _truth(exact, differences, observed, models.precision.unit),
        alternatives=alternatives,
        accumulated_loss=accumulated,
    )
    return truth, differences.arrays()


def gradient_changes(
    models: Models, inputs: Sequence[Tensor], target: Any, times: float, loss: LossOf = cross_entropy_of
) -> Arrays:
    """The change (rms) of each value of each parameter's gradient when every layer rounds several times as coarsely as float32.

    Rounding rarely moves an activation past a kink, such as that of a ReLU at zero; perturbations that are larger do so
    reliably. The running statistics of the float64 model are changed.

    times: size of the perturbations, as a multiple of float32's. target, loss: as in ``step_in_float64``.
    """
    float64_inputs = [as_float64(tensor) for tensor in inputs]
    exact = _step(models.float64_model, float64_inputs, target, loss)
    noise, differences = models.noise(), _Differences(exact)
    for _ in range(REPEATS):
        differences.add(_perturbed_step(models.float64_model, float64_inputs, target, noise, loss, times), REPEATS)
    return {name: noise.numpy() for name, noise in _of(differences.noise, "gradient").items()}


# -- one step ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """One step: its loss, "gradient/PARAMETER" and the running "statistic/NAME" after it, and the outputs of the model."""

    loss: float
    tensors: dict[str, Tensor]
    outputs: Any


def _own_step(models: Models, inputs: Sequence[Tensor], target: Any, loss: LossOf) -> _Step:
    """The reference's own step, in float32 or under autocast. In float16, the loss is scaled as far as gradients stay finite."""
    scales = [2.0**power for power in range(16, -1, -1)] if models.precision.name == "float16" else [1.0]
    start = _running_statistics(models.float32_model)
    for scale in scales:
        _set_statistics(models.float32_model, start)
        with models.precision.autocast():
            step = _step(models.float32_model, inputs, target, loss, scale=scale)
        if finite(list(_of(step.tensors, "gradient").values())):
            break
    return step


def _step(
    model: nn.Module,
    inputs: Sequence[Tensor],
    target: Any,
    loss_of: LossOf,
    noise: Noise | None = None,
    scale: float = 1.0,
) -> _Step:
    """Compute a step; parameters that have no influence have gradients of zero.

    noise: of the operations of the loss, and of approximated gradients.
    scale: what the loss is multiplied by; the gradients are divided by it.
    """
    parameters = dict(model.named_parameters())
    float64 = bool(parameters) and next(iter(parameters.values())).dtype == torch.float64
    with float64_arithmetic() if float64 else nullcontext():
        outputs = model(*inputs)
    loss = loss_in(loss_of, outputs, target, float64, noise)
    scaled = loss * scale if scale != 1 else loss
    with perturbed_gradients(noise):
        found = torch.autograd.grad(scaled, list(parameters.values()), allow_unused=True)
    tensors = {
        f"gradient/{name}": torch.zeros_like(p) if g is None else (g / scale if scale != 1 else g)
        for (name, p), g in zip(parameters.items(), found)
    }
    tensors |= {f"statistic/{name}": value for name, value in _running_statistics(model).items()}
    return _Step(float(loss.detach()), tensors, map_tensors(outputs, lambda tensor: tensor.detach()))


def _of(tensors: dict[str, Tensor], what: str) -> dict[str, Tensor]:
    """The gradients, or the statistics, by name."""
    return {key.removeprefix(f"{what}/"): tensor for key, tensor in tensors.items() if key.startswith(f"{what}/")}


def _loss_of_parts(outputs: Any, target: Any, loss: LossOf, parts: int) -> float:
    """The mean of the losses of all micro-batches, from the outputs of the whole batch in float64.

    It is another value than the loss of the whole batch where a micro-batch has fewer labels that count.
    """
    size, losses = len(flatten(outputs)[0]) // parts, []
    with torch.no_grad(), float64_arithmetic():
        for index, (own,) in enumerate(micro_batches((target,), parts)):
            items = torch.arange(index * size, (index + 1) * size)
            losses.append(float(loss(map_tensors(outputs, methodcaller("index_select", 0, items)), own)))
    return sum(losses) / parts


def _running_statistics(model: nn.Module) -> dict[str, Tensor]:
    """Running means and variances by name, of batch norms that average by a momentum.

    Other batch norms average by a count of calls, which a captured state does not contain.
    """
    return {
        f"{name}.{key}": buffer.clone()
        for name, layer in model.named_modules()
        if isinstance(layer, BATCH_NORMS) and layer.momentum
        for key, buffer in layer.named_buffers(recurse=False)
        if buffer.is_floating_point()
    }


def _set_statistics(model: nn.Module, statistics: dict[str, Tensor]) -> None:
    buffers = dict(model.named_buffers())
    for name, value in statistics.items():
        buffers[name].copy_(value)


def _perturbed_step(
    model: nn.Module, inputs: Sequence[Tensor], target: Any, noise: Noise, loss: LossOf, times: float = 1.0
) -> _Step:
    """A step with perturbed inputs and weights, and with perturbed outputs and gradients of every layer.

    times: size of the perturbations, as a multiple of float32's.
    """
    originals = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        noise.perturb_(parameter.data, times * noise.unit)
    try:
        with perturbed_layers(model, noise, times):
            return _step(model, [noise.given(tensor, times * noise.unit) for tensor in inputs], target, loss, noise)
    finally:
        for name, parameter in model.named_parameters():
            parameter.data.copy_(originals[name])


@contextmanager
def perturbed_layers(model: nn.Module, noise: Noise, times: float) -> Iterator[None]:
    """Perturb the output of every layer of a float64 model, and the gradient of that output, within the context.

    A layer that ``torch.vmap`` calls is left out: its code has no values there that random numbers could be drawn for.
    """

    def perturb_output(layer: nn.Module, args: Any, output: Any) -> Any:
        if isinstance(layer, COPIES) or _in_vmap():
            return None
        inputs = flatten(args)
        size = times * noise.rounding(summed_terms(layer, inputs))
        return map_tensors(output, lambda y: _perturbed_both_ways(layer, inputs, y, noise, size, times))

    hooks = [layer.register_forward_hook(perturb_output) for layer in leaves(model).values()]
    with hooked(hooks):
        yield


def _in_vmap() -> bool:
    """Whether ``torch.vmap``, or a function of torch.func that uses it, runs the code."""
    levels = torch._C._functorch.get_interpreter_stack() or ()
    return any(level.key() == torch._C._functorch.TransformType.Vmap for level in levels)


def _perturbed_both_ways(
    layer: nn.Module, inputs: list[Tensor], y: Tensor, noise: Noise, size: float, times: float
) -> Tensor:
    """A perturbed copy of an output. Its gradient is perturbed, too, when it is computed.

    size: relative size of the perturbation of the output.
    """
    if not (y.is_floating_point() and y.requires_grad):
        return y
    rounding = times * noise.rounding(summed_gradient_terms(layer, inputs, y) if y.dim() > 1 else 1)
    # The perturbation is added: autograd would keep the factors of a multiplication in memory.
    # Of an infinity, nothing is added.
    y = y + noise.rounded(y.detach(), size).sub_(y.detach()).nan_to_num_(0.0)
    y.register_hook(lambda g: noise.rounded(g, rounding))
    if is_training_norm(layer) and inputs[0].requires_grad:
        _perturb_means(layer, inputs[0], y, noise, times)
    return y


def _perturb_means(layer: nn.Module, x: Tensor, y: Tensor, noise: Noise, times: float) -> None:
    """Perturb the two means over the batch in the gradient of a batch norm's input x as their sums round. y: its output.

    The gradient is w/σ (g - E[g] - x̂ E[g x̂]); g is that of y.
    """
    lost: list[Tensor] = []

    def of_output(g: Tensor) -> None:
        lost[:] = [error_of_means(layer, x.detach(), g, noise) * times]

    y.register_hook(of_output)
    x.register_hook(lambda g: g + lost.pop() if lost else g)


# -- noise floors -----------------------------------------------------------------------------------------------------


class _Differences:
    """The differences of other steps from the exact one.

    losses: absolute differences of the loss, one for each step.
    noise: rms of the noise of every value, by the keys of the tensors of a step.
    """

    def __init__(self, exact: _Step) -> None:
        self.exact = exact
        self.losses: list[float] = []
        self.noise = {key: torch.zeros(value.shape) for key, value in exact.tensors.items()}

    def add(self, step: _Step, repeats: int = 1) -> None:
        """Add one step. repeats: number of steps of the same kind, whose mean squares are added."""
        self.losses.append(abs(step.loss - self.exact.loss))
        for key, noise in self.noise.items():
            _add(noise, (step.tensors[key] - self.exact.tensors[key]) / math.sqrt(repeats))

    def round(self, unit: float, sums: Mapping[str, Tensor]) -> None:
        """Add the rounding of the values themselves, and of the sums behind them, and what is lost of tiny ones.

        unit: unit roundoff of the precision. sums: see ``_Observed``.
        """
        for key, noise in self.noise.items():
            exact = self.exact.tensors[key]
            if (name := key.removeprefix("gradient/")) in sums:
                _add(noise, sums[name])
            _add(noise, exact * (unit / math.sqrt(3)))
            _add(noise, (exact != 0) * SMALLEST[torch.float32])

    def arrays(self) -> Arrays:
        """The exact arrays and their noise, see ``step_in_float64``."""
        found = {key: value.numpy() for key, value in self.exact.tensors.items()}
        return found | {f"noise/{key}": value.numpy() for key, value in self.noise.items()}


def _add(noise: Tensor, error: Tensor) -> None:
    """Add an error to the rms of noise, value by value. Not by squares, of which those of small values would be zero."""
    torch.hypot(noise, error.to(noise.dtype), out=noise)


def _mean_square(tensor: Tensor) -> float:
    """The mean square; infinity when a value is not finite."""
    found = float(tensor.double().square().mean())
    return found if math.isfinite(found) else math.inf


@dataclass
class _Observed:
    """Numbers that are observed during a pass.

    terms: batch norm -> number of values of one channel.
    momentum: batch norm -> its momentum.
    values: number of values that the loss sums.
    subtracted: see ``losses.subtracted``.
    sums: parameter -> the rms rounding of its gradient, see ``rounding_of_sums``.
    """

    terms: dict[str, int] = field(default_factory=dict)
    momentum: dict[str, float] = field(default_factory=dict)
    values: int = 1
    subtracted: float = 0.0
    sums: dict[str, Tensor] = field(default_factory=dict)


@contextmanager
def _observed(models: Models) -> Iterator[_Observed]:
    """Observe a pass of the float64 model within the context."""
    norms = {name: layer for name, layer in models.layers.items() if isinstance(layer, BATCH_NORMS)}
    seen = _Observed(momentum={name: layer.momentum for name, layer in norms.items()})

    def count(name: str, _: nn.Module, args: Any) -> None:
        seen.terms[name] = args[0].numel() // args[0].shape[1]

    names = {id(parameter): name for name, parameter in models.float64_model.named_parameters()}

    def add(layer: nn.Module, x: Tensor, upstream: Tensor) -> None:
        for own, rounding in rounding_of_sums(layer, x, upstream):
            name = names[id(getattr(layer, own))]
            _add(seen.sums.setdefault(name, torch.zeros(rounding.shape)), rounding)

    def watch(layer: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad and args:
            output.register_hook(partial(add, layer, flatten(args)[0].detach()))

    counting = (layer.register_forward_pre_hook(partial(count, name)) for name, layer in norms.items())
    with hooked(chain(counting, (layer.register_forward_hook(watch) for layer in models.layers.values()))):
        yield seen


def _truth(exact: _Step, differences: _Differences, observed: _Observed, unit: float) -> StepTruth:
    # The loss sums values, such as those of all classes, so its rounding grows with their number as in any sum.
    # Its own arithmetic is in float32, also where the model's is narrower.
    summing = limits.growth(observed.values, unit) * unit * abs(exact.loss)
    rounding = math.hypot(summing, limits.UNIT * observed.subtracted) / math.sqrt(3)
    sizes, floors, statistics = (
        {name: math.sqrt(_mean_square(tensor)) for name, tensor in tensors.items()}
        for tensors in (
            _of(exact.tensors, "gradient"),
            _of(differences.noise, "gradient"),
            _of(differences.noise, "statistic"),
        )
    )
    losses = [loss if math.isfinite(loss) else math.inf for loss in differences.losses]
    return StepTruth(exact.loss, max(*losses, rounding), floors, sizes, statistics, observed.terms, observed.momentum)
