"""Mistakes of training code: what ``xverify mutate --task train`` plants, and what the report must contain.

Some mistakes are only other settings of the optimizer. The others change the port: see ``worker.mistakes``. In a port of another
framework than torch, mistakes are made with exact equivalents of torch's formulas, which take a wrong formula as a setting. What
changes torch's own code is not made there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..workload.losses import Objective
from ..workload.optimizers import VARIANTS, Optimizer, optimizer

IN_MODEL = "momentum"  # the plant that changes the batch norms of the model
OWN_NORMS = "bessel"  # the mistake that the batch norms of every framework but torch make by themselves


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    kind: its name.
    check: the first check that it breaks.
    says: a text that the report must contain.
    asked: the optimizer settings of the run.
    made: the optimizer settings of the port; None: the same.
    plant: the name of a change of a port of torch (see worker.mistakes); "" for none.
    norms: whether the mistake needs a batch norm.
    objective: the loss of the port; None: the same as that of the reference.
    share: the change of the first parameter's gradient, as a share of it; 0.0 where the mistake does not change it by such a share.
    """

    kind: str
    check: str
    says: str
    asked: Optimizer
    made: Optimizer | None = None
    plant: str = ""
    norms: bool = False
    objective: Objective | None = field(default=None, compare=False)
    share: float = 0.0


def _mistakes() -> list[Mistake]:
    adam, rms = optimizer("adam"), optimizer("rmsprop")
    nesterov, decay = optimizer("sgd", momentum=0.9, nesterov=True), optimizer("sgd", momentum=0.9, weight_decay=0.01)
    adamw, adafactor = optimizer("adamw", weight_decay=0.1), optimizer("adafactor")
    return [
        Mistake("batch-norm momentum convention", "statistics", "momentum weighs the old value", adam, None, "momentum", True),
        Mistake("no Bessel correction", "statistics", "biased variance", nesterov, None, "bessel", True),
        Mistake("wrong beta2", "update", "beta2=0.99;", adam, replace(adam, beta2=0.99)),
        Mistake("weight decay missing", "update", "is missing", decay, replace(decay, weight_decay=0.0)),
        Mistake("weight decay decoupled", "update", "decoupled", decay, None, "decoupled"),
        Mistake("weight decay coupled", "update", "added to the gradient", adamw, replace(adamw, name="adam")),
        Mistake("learning rate x (1 + 1e-4)", "update", "learning rate", adam, replace(adam, lr=adam.lr * (1 + 1e-4))),
        Mistake("gradient not zeroed", "update", "was not zeroed", nesterov, None, "accumulate"),
        Mistake("eps placement", "update", "eps-hat", replace(adam, eps=1e-4), None, "eps-hat"),
        Mistake("eps inside the root", "update", "eps-inside", rms, None, "eps-inside"),
        Mistake("other eps", "update", "eps=1e-05", adam, replace(adam, eps=1e-5)),
        Mistake("Nesterov off", "update", "without Nesterov", nesterov, replace(nesterov, nesterov=False)),
        Mistake("momentum missing", "update", "momentum 0.9 is missing", decay, None, "no momentum"),
        Mistake("decay rate of Adafactor", "update", "beta2_decay=-0.5;", adafactor, replace(adafactor, beta2_decay=-0.5)),
        Mistake("clipping of Adafactor", "update", "threshold=0.5;", adafactor, replace(adafactor, threshold=0.5)),
        Mistake("frozen layer", "gradients", "frozen", adam, None, "frozen"),
    ]  # fmt: skip


MISTAKES = _mistakes()


@dataclass(frozen=True)
class Made:
    """How a port makes a mistake, or none.

    settings: the optimizer settings of the port. Their variants are a wrong formula that it has to compute.
    match: whether it computes torch's formulas, for the optimizer and for running statistics, instead of the framework's own.
    in_model, in_training: the name of a change of the model, and of its training (see worker.mistakes); "" for none.
    """

    settings: Optimizer
    match: bool
    in_model: str = ""
    in_training: str = ""


def made(mistake: Mistake, in_torch: bool) -> Made | None:
    """How a port makes a mistake; None when it cannot. in_torch: whether it is a port of torch."""
    settings, plant = mistake.made or mistake.asked, mistake.plant
    if plant == IN_MODEL:
        return Made(settings, not in_torch, in_model=plant)
    if in_torch:
        return Made(settings, False, in_training=plant)
    if plant in VARIANTS:
        return Made(replace(settings, variants=(plant,)), True)
    if plant == OWN_NORMS:
        return Made(settings, False)
    return None if plant else Made(settings, True)
