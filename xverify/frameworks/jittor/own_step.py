"""A user's own training step in Jittor, and what it gives to the optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import jittor as jt

from xverify.framework.own_step import Step, Update, watched_calls
from xverify.framework.structures import Natives
from xverify.weights import jittor as weights


def computed(step: Step) -> Step:
    """The step with everything computed that it changes: Jittor computes nothing that is not asked for."""

    def call(batch: Natives) -> Any:
        losses = step(batch)
        jt.sync_all()
        if isinstance(losses, Mapping):  # Python's numbers cannot be waited for
            return {name: value if isinstance(value, jt.Var) else _variable(value) for name, value in losses.items()}
        return losses

    return call


def _variable(value: Any) -> Any:
    return jt.array(value) if type(value) in (int, float) else value


def watched_updates(model: Any) -> AbstractContextManager[list[Update]]:
    """The gradients that every optimizer is given within the context, in the order of its calls."""
    names = {id(variable): name for name, variable in weights.named_variables(model).items()}

    def note(optimizer: Any, *_: Any, **__: Any) -> Update:
        gradients = {
            names[id(variable)]: gradient.numpy()
            for group in optimizer.param_groups
            for variable, gradient in zip(group["params"], group.get("grads", ()))
            if id(variable) in names and not variable.is_stop_grad()
        }
        return Update(optimizer, gradients)

    return watched_calls([jt.optim.Optimizer], "pre_step", note, after=True)  # which computes the gradients
