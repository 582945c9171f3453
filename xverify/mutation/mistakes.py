"""Mistakes of training code, made on purpose in a learner of torch: what ``xverify mutate --task train`` plants.

Each is a function of the adapter's ``Learner``; those that are no more than another setting are in SETTINGS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..workload.optimizers import Optimizer, optimizer, update


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    kind: its name.
    check: the first check that it breaks.
    says: what the report must say of it.
    asked: the optimizer settings that the run asks for.
    made: the settings that the port trains with; None for the same.
    plant: the name of what is changed in the port besides; "" for nothing.
    norms: whether it needs a batch norm.
    """

    kind: str
    check: str
    says: str
    asked: Optimizer
    made: Optimizer | None = None
    plant: str = ""
    norms: bool = False


def _mistakes() -> list[Mistake]:
    adam, rms = optimizer("adam"), optimizer("rmsprop")
    nesterov, decay = optimizer("sgd", momentum=0.9, nesterov=True), optimizer("sgd", momentum=0.9, weight_decay=0.01)
    adamw = optimizer("adamw", weight_decay=0.1)
    return [
        Mistake("batch-norm momentum convention", "statistics", "momentum weighs the old value", adam, None, "momentum", True),
        Mistake("no Bessel correction", "statistics", "biased variance", adam, None, "bessel", True),
        Mistake("wrong beta2", "update", "beta2=0.99;", adam, replace(adam, beta2=0.99)),
        Mistake("weight decay missing", "update", "is missing", decay, replace(decay, weight_decay=0.0)),
        Mistake("weight decay decoupled", "update", "decoupled", decay, None, "decoupled"),
        Mistake("weight decay coupled", "update", "added to the gradient", adamw, replace(adamw, name="adam")),
        Mistake("learning rate x (1 + 1e-4)", "update", "learning rate", adam, replace(adam, lr=adam.lr * (1 + 1e-4))),
        Mistake("loss summed, not averaged", "loss", "the sum over all rows", adam, None, "sum"),
        Mistake("gradient not zeroed", "update", "was not zeroed", nesterov, None, "accumulate"),
        Mistake("eps placement", "update", "eps-hat", replace(adam, eps=1e-4), None, "eps-hat"),
        Mistake("eps inside the root", "update", "eps-inside", rms, None, "eps-inside"),
        Mistake("other eps", "update", "eps=1e-05", adam, replace(adam, eps=1e-5)),
        Mistake("Nesterov off", "update", "without Nesterov", nesterov, replace(nesterov, nesterov=False)),
        Mistake("momentum missing", "update", "momentum 0.9 is missing", decay, None, "no momentum"),
        Mistake("frozen layer", "gradients", "frozen", adam, None, "frozen"),
    ]  # fmt: skip


MISTAKES = _mistakes()


def _momentum(learner: Any) -> None:
    for norm in _norms(learner):
        norm.momentum = 1 - norm.momentum


def _bessel(learner: Any) -> None:
    for norm in _norms(learner):

        def before(norm: Any, args: Any) -> None:
            norm.old_variance = norm.running_var.clone()

        def after(norm: Any, args: Any, result: Any) -> None:
            terms = args[0].numel() // args[0].shape[1]
            share = norm.running_var - (1 - norm.momentum) * norm.old_variance
            norm.running_var = norm.running_var - share / terms  # in place autograd would miss the one that it has kept

        norm.register_forward_pre_hook(before)
        norm.register_forward_hook(after)


def _norms(learner: Any) -> list[Any]:
    return [module for module in learner.model.modules() if hasattr(module, "running_var")]


def _sum(learner: Any) -> None:
    learner.cross_entropy = lambda logits, target: learner.torch.nn.functional.cross_entropy(
        logits.flatten(0, -2), target.flatten(), reduction="sum"
    )


def _accumulate(learner: Any) -> None:
    learner.optim.zero_grad = lambda *args, **kwargs: None
    gradients = learner.gradients

    def alone(*batch: Any) -> Any:
        """The gradients of this batch; they stay, and the next step adds its own to them."""
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
    """A step by our own formula with other settings, in place of torch's."""

    def plant(learner: Any) -> None:
        torch, settings = learner.torch, change(learner.optimizer)
        names = learner.STATE_NAMES[learner.optimizer.name]

        def step(*_: Any) -> None:
            with torch.no_grad():
                for parameter in learner.parameters.values():
                    state = learner.optim.state.setdefault(parameter, {})
                    held = [state.get(name, torch.zeros_like(parameter)) for name in names]
                    new, values = update(
                        settings, parameter, parameter.grad, held, float(learner.steps + 1), torch.sqrt
                    )
                    parameter.copy_(new)
                    state.update(zip(names, values or held))

        learner.optim.step = step

    return plant


PLANTS: Mapping[str, Callable[[Any], None]] = {
    "momentum": _momentum,
    "bessel": _bessel,
    "sum": _sum,
    "accumulate": _accumulate,
    "frozen": _frozen,
    "eps-hat": _formula(lambda o: replace(o, variants=("eps-hat",))),
    "eps-inside": _formula(lambda o: replace(o, variants=("eps-inside",))),
    "decoupled": _formula(lambda o: replace(o, variants=("decoupled",))),
    "no momentum": _formula(lambda o: replace(o, momentum=0.0)),
}
