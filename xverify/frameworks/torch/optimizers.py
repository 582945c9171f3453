"""torch.optim, and torch's own facilities for a recipe: torch.nn.utils.clip_grad and lr_scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xverify.framework.eager import ParameterGroup
from xverify.frameworks.torch.adafactor import own_adafactor
from xverify.frameworks.torch.lion import Lion
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import Recipe


def torch_optimizer(o: Optimizer, groups: list[ParameterGroup]) -> Any:
    """An optimizer of torch with these settings and parameter groups."""
    optim = torch.optim
    if o.name == "sgd":
        return optim.SGD(groups, o.lr, o.momentum, weight_decay=o.weight_decay, nesterov=o.nesterov)
    if o.name == "rmsprop":
        return optim.RMSprop(groups, o.lr, o.alpha, o.eps, o.weight_decay)
    if o.name == "adagrad":
        return optim.Adagrad(groups, o.lr, weight_decay=o.weight_decay, eps=o.eps)
    if o.name == "lion":
        return Lion(groups, o)
    if o.name == "adafactor":
        return own_adafactor(groups, o)
    kind = optim.Adam if o.name == "adam" else optim.AdamW
    return kind(groups, o.lr, (o.beta1, o.beta2), o.eps, o.weight_decay, o.recipe.amsgrad)


def torch_scheduler(o: Optimizer, optim: Any, rates: Sequence[float]) -> Any:
    """torch's scheduler; None without a schedule. rates: of the parameter groups of ``optim``."""
    schedule, lr_scheduler = o.recipe.schedule, torch.optim.lr_scheduler
    if schedule is None:
        return None
    warmup = schedule.warmup
    count = (schedule.steps or 0) - warmup
    if schedule.kind == "one-cycle":
        return lr_scheduler.OneCycleLR(optim, rates, total_steps=count, cycle_momentum=False)
    make: Callable[[], Any] = {
        "constant": lambda: lr_scheduler.ConstantLR(optim, 1.0),
        "step": lambda: lr_scheduler.StepLR(optim, schedule.every, schedule.gamma),
        "linear": lambda: lr_scheduler.LinearLR(optim, 1.0, schedule.end, count),
        "cosine": lambda: lr_scheduler.CosineAnnealingLR(optim, count, schedule.end * o.lr),
    }[schedule.kind]
    if schedule.kind == "cosine" and schedule.end and len(set(rates)) > 1:
        # CosineAnnealingLR has one smallest rate for all groups.
        return lr_scheduler.LambdaLR(optim, schedule.factor)
    if not warmup:
        return make()
    rise = lr_scheduler.LinearLR(optim, schedule.start, 1.0, warmup)
    return lr_scheduler.SequentialLR(optim, [rise, make()], [warmup])


def clipping(recipe: Recipe, trained: Sequence[Any]) -> Callable[[], object]:
    """A function that clips the gradients of these parameters."""
    utils = torch.nn.utils
    if not recipe.clip:
        return lambda: None
    how, limit = recipe.clip
    if how == "clip_value":
        return lambda: utils.clip_grad_value_(trained, limit)
    if how == "clip_norm":
        return lambda: utils.clip_grad_norm_(trained, limit)
    return lambda: [utils.clip_grad_norm_(parameter, limit) for parameter in trained]
