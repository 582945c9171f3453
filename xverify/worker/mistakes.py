"""Mistakes that are made on purpose: of models, before their training is prepared, and of training code of torch.

Those of ``PLANTS`` are functions that change the adapter's ``Learner`` (framework.adapter.Training); ``PlantMistake`` makes them.
Those of ``IN_MODEL`` change the layers of a model of any framework; ``PrepareTraining`` makes them. ``mutation.mistakes`` lists
which mistakes a mutation plants, and what a report must say about each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MethodType
from typing import Any

from ..workload.optimizers import Optimizer, update


def _bessel(learner: Any) -> None:
    for norm in _norms(learner):

        def before(norm: Any, args: Any) -> None:
            norm.old_variance = norm.running_var.clone()

        def after(norm: Any, args: Any, result: Any) -> None:
            terms = args[0].numel() // args[0].shape[1]
            share = norm.running_var - (1 - norm.momentum) * norm.old_variance
            norm.running_var = (
                norm.running_var - share / terms
            )  # not in place, because autograd has stored the old tensor

        norm.register_forward_pre_hook(before)
        norm.register_forward_hook(after)


def _norms(learner: Any) -> list[Any]:
    return [module for module in learner.model.modules() if hasattr(module, "running_var")]


def _accumulate(learner: Any) -> None:
    learner.optim.zero_grad = lambda *args, **kwargs: None
    gradients = learner.gradients

    def alone(*batch: Any) -> Any:
        """The gradients of this batch alone. They are kept, and the next step adds its own gradients to them."""
        for parameter in learner.parameters.values():
            parameter.grad = None
        return gradients(*batch)

    learner.gradients = alone


def _frozen(learner: Any) -> None:
    layer = next(iter(learner.parameters)).rpartition(".")[0]
    for name, parameter in learner.parameters.items():
        if name.rpartition(".")[0] == layer:
            parameter.requires_grad_(False)


def _formula(change: Callable[[Optimizer], Optimizer]) -> Callable[[Any], None]:
    """A step by the formula of ``workload.optimizers`` with changed settings, in place of torch's step."""

    def plant(learner: Any) -> None:
        torch, settings = learner.torch, change(learner.optimizer)
        names = learner.STATE_NAMES[learner.optimizer.name]

        def step(*_: Any) -> None:
            with torch.no_grad():
                for parameter in learner.parameters.values():
                    state = learner.optim.state.setdefault(parameter, {})
                    old_state = [state.get(name, torch.zeros_like(parameter)) for name in names]
                    number, ops = float(learner.steps + 1), learner.framework.operations
                    new, values = update(settings, parameter, parameter.grad, old_state, number, ops)
                    parameter.copy_(new)
                    state.update(zip(names, values or old_state))

        learner.optim.step = step

    return plant


def _sum_of_micro_batches(learner: Any) -> None:
    learner.share = 1.0


def _schedule_early(learner: Any) -> None:
    _before_update(learner, learner.advance)


def _last_micro_batch(learner: Any) -> None:
    forward = learner.forward

    def zeroed(*inputs: Any) -> Any:
        learner.optim.zero_grad()
        return forward(*inputs)

    learner.forward = zeroed


def _clip_late(learner: Any) -> None:
    clip, step = learner.clip, learner.optim.step
    learner.clip = lambda: None

    def early(*_: Any) -> None:
        step()
        clip()

    learner.optim.step = MethodType(early, learner.optim)  # a scheduler of torch expects a method


def _schedule_late(learner: Any) -> None:
    start = learner.start_schedule
    learner.start_schedule = lambda steps: start(max(0, steps - 1))


def _average_early(learner: Any) -> None:
    _before_update(learner, learner.take_average)
    learner.take_average = lambda: None


def _before_update(learner: Any, does: Callable[[], None]) -> None:
    """Do something before the optimizer makes its update, which torch does after it."""
    step = learner.optim.step

    def late(*_: Any) -> None:
        does()
        step()

    learner.optim.step = MethodType(late, learner.optim)  # a scheduler of torch expects a method


def _clip_scaled(learner: Any) -> None:
    """Clip the gradients before they are divided by the scale of the loss."""
    clip, unscale = learner.clip, learner.unscale
    learner.before_clipping = lambda: None

    def clip_first() -> None:
        clip()
        unscale()

    learner.clip = clip_first


def _scale_kept(learner: Any) -> None:
    """Give the optimizer gradients that still contain the scale of the loss."""
    learner.before_clipping = lambda: None
    learner.update = lambda: learner.optim.step()


def _never_skipped(learner: Any) -> None:
    """Make an update also with infinite gradients."""
    learner.update = lambda: (learner.optim.step(), learner.scaler.update())


def _bfloat16_weights(learner: Any) -> None:
    """Keep the weights in bfloat16 between steps."""
    take_average = learner.take_average

    def rounded() -> None:
        with learner.torch.no_grad():
            for parameter in learner.parameters.values():
                parameter.copy_(parameter.bfloat16())
        take_average()

    learner.take_average = rounded


def _gradient_scaled(learner: Any) -> None:
    """Multiply the gradient of the first weight by 1.3."""
    next(iter(learner.parameters.values())).register_hook(lambda gradient: 1.3 * gradient)


PLANTS: Mapping[str, Callable[[Any], None]] = {
    "bessel": _bessel,
    "accumulate": _accumulate,
    "frozen": _frozen,
    "sum of micro-batches": _sum_of_micro_batches,
    "schedule early": _schedule_early,
    "schedule late": _schedule_late,
    "clip late": _clip_late,
    "last micro-batch": _last_micro_batch,
    "average early": _average_early,
    "clip scaled": _clip_scaled,
    "scale kept": _scale_kept,
    "never skipped": _never_skipped,
    "bfloat16 weights": _bfloat16_weights,
    "gradient scaled": _gradient_scaled,
    "no AMSGrad": _formula(lambda o: replace(o, recipe=replace(o.recipe, amsgrad=False))),
    "eps-hat": _formula(lambda o: replace(o, variants=("eps-hat",))),
    "eps-inside": _formula(lambda o: replace(o, variants=("eps-inside",))),
    "decoupled": _formula(lambda o: replace(o, variants=("decoupled",))),
    "no momentum": _formula(lambda o: replace(o, momentum=0.0)),
}


def _momentum(layers: Iterable[Any]) -> None:
    """Let the momentum of batch norms weigh the other value: the new one instead of the old one, or the reverse."""
    for layer in layers:
        for name in ("momentum", "_momentum"):
            if "BatchNorm" in type(layer).__name__ and isinstance(getattr(layer, name, None), float):
                setattr(layer, name, 1 - getattr(layer, name))


IN_MODEL: Mapping[str, Callable[[Iterable[Any]], None]] = {"momentum": _momentum}
