"""A user's own training step in Jittor, what it gives to the optimizers, and what they keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import jittor as jt

from xverify.framework.own_state import Slot
from xverify.framework.own_step import Step, Update, watched_calls
from xverify.framework.structures import Natives
from xverify.weights import jittor as weights

# Class of an optimizer -> list of a parameter group -> torch's name of what is kept there.
KINDS = {
    "SGD": {"values": "momentum_buffer"},
    "Adam": {"m": "exp_avg", "values": "exp_avg_sq"},
    "AdamW": {"m": "exp_avg", "values": "exp_avg_sq"},
    "RMSprop": {"values": "square_avg"},
}


def computed(step: Step) -> Step:
    """The step with everything computed that it changes: Jittor computes nothing that is not asked for."""

    def call(batch: Natives) -> Any:
        losses = step(batch)
        jt.sync_all()
        return losses

    return call


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


def slots(optimizer: Any) -> Iterator[Slot]:
    """What an optimizer keeps: the lists of its groups that stand beside the parameters, and the number of its steps."""
    kinds = {key: kind for each in type(optimizer).__mro__ for key, kind in KINDS.get(each.__name__, {}).items()}
    groups = optimizer.param_groups
    yield Slot("step", optimizer.n_step)
    for key in dict.fromkeys(key for group in groups for key in group if key not in ("params", "grads")):
        lists = [(group["params"], group[key]) for group in groups if isinstance(group.get(key), list)]
        pairs = [
            (own, each) for params, values in lists for own, each in zip(params, values) if isinstance(each, jt.Var)
        ]
        if pairs:
            yield Slot(kinds.get(key, key), of=[pair for pair in pairs if not pair[0].is_stop_grad()])
