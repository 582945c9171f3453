"""jittor.optim, and Jittor's own facilities for a recipe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jittor as jt
from jittor import lr_scheduler

from xverify.errors import Unsupported
from xverify.framework.eager import ParameterGroup
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import CLIPS


def jittor_optimizer(o: Optimizer, groups: list[ParameterGroup]) -> tuple[Optimizer, Any]:
    """The settings with all of Jittor's variants, and Jittor's own optimizer. Raises Unsupported for what it does not have."""
    if lack := next((lack for lack, asked in _lacks(o).items() if asked), ""):
        raise Unsupported(f"{lack}; run with --match-optimizer")
    optim, schedule, variants = jt.optim, o.recipe.schedule, list[str]()
    if o.name == "sgd":
        made = optim.SGD(groups, o.lr, o.momentum, o.weight_decay, nesterov=o.nesterov)
    elif o.name == "rmsprop":
        made = optim.RMSprop(groups, o.lr, o.eps, o.alpha)
    else:
        kind = optim.Adam if o.name == "adam" else optim.AdamW
        made = kind(groups, o.lr, o.eps, (o.beta1, o.beta2), o.weight_decay)
        variants += ["eps-hat"] * (o.name == "adam")
    late = schedule and not schedule.warmup and (schedule.kind == "cosine" or schedule.every == 1)
    variants += ["late schedule"] * bool(late)
    variants += ["steps of micro-batches"] * (o.recipe.accumulate > 1 and o.name in ("adam", "adamw"))
    return replace(o, variants=tuple(variants)), made


def jittor_scheduler(o: Optimizer, optim: Any) -> Any:
    """Jittor's scheduler; None without one."""
    schedule = o.recipe.schedule
    if schedule is None:
        return None
    if schedule.kind == "cosine" and not schedule.warmup:
        return lr_scheduler.CosineAnnealingLR(optim, schedule.steps, schedule.end * o.lr)
    if schedule.kind == "step" and not schedule.warmup:
        return lr_scheduler.StepLR(optim, schedule.every, schedule.gamma)
    return jt.optim.LambdaLR(optim, schedule.factor)


def _lacks(o: Optimizer) -> dict[str, bool]:
    """What Jittor has no facility for -> whether the settings ask for it."""
    recipe, schedule = o.recipe, o.recipe.schedule
    ends = schedule is not None and schedule.kind == "cosine" and bool(schedule.end)
    how = recipe.clip[0] if recipe.clip else "clip_norm"
    decays = [o.weight_decay, *(group.weight_decay for group in recipe.groups)]
    return {
        "Jittor's cosine schedule has one smallest rate for all groups": ends
        and any(group.lr for group in recipe.groups),
        "jittor.optim.RMSprop has no weight decay": o.name == "rmsprop" and any(decays),
        "Jittor has no moving average of weights": recipe.average is not None,
        f"jittor.optim clips the norm of all gradients only: {CLIPS[how]} cannot be limited": how != "clip_norm",
        "jittor.optim has no AMSGrad": recipe.amsgrad,
        f"jittor.optim has no {o.name.capitalize()}": o.name in ("adagrad", "lion", "adafactor"),
    }
