"""A user's own training step in Jittor, and what it gives to the optimizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jittor as jt

from xverify.framework.own_step import Step, Update
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


@contextmanager
def watched_updates(model: Any) -> Iterator[list[Update]]:
    """The gradients that every optimizer is given within the context, in the order of its calls."""
    found: list[Update] = []
    names = {id(variable): name for name, variable in weights.named_variables(model).items()}
    pre_step = jt.optim.Optimizer.pre_step

    def watched(optimizer: Any, loss: Any, retain_graph: bool = False) -> None:
        pre_step(optimizer, loss, retain_graph)
        gradients = {
            names[id(variable)]: gradient.numpy()
            for group in optimizer.param_groups
            for variable, gradient in zip(group["params"], group.get("grads", ()))
            if id(variable) in names and not variable.is_stop_grad()
        }
        found.append(Update(optimizer, gradients))

    jt.optim.Optimizer.pre_step = watched
    try:
        yield found
    finally:
        jt.optim.Optimizer.pre_step = pre_step
