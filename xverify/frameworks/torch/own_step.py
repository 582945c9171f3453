"""A user's own training step in torch: what it gives to the optimizers, what they keep, and what the step draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from xverify.float64.fused_scaling import scale_left, skips
from xverify.framework.generators import Noted, watched
from xverify.framework.own_state import Slot, StoredWeight
from xverify.framework.own_step import Update
from xverify.frameworks.torch import random
from xverify.weights.canonical import COUNTERS
from xverify.weights.torch import whole

BASE = ("defaults", "state", "param_groups")  # attributes of every optimizer


@contextmanager
def watched_draws(note: Noted) -> Iterator[None]:
    """Within the context, ``note`` is told the name of every function of torch, numpy and python that draws random numbers."""
    with ExitStack() as stack:
        stack.enter_context(watched(note))
        stack.enter_context(random.watched_draws(note))
        yield


@contextmanager
def watched_updates(model: nn.Module) -> Iterator[list[Update]]:
    """The gradients that every optimizer is given within the context, in the order of its calls.

    A GradScaler leaves it to a fused optimizer to divide them by its scale, and to skip the update where they are infinite.
    """
    found: list[Update] = []
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def note(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not skips(optimizer) and _updating(optimizer) is optimizer:
            given = [each for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
            scale = scale_left(optimizer)
            arrays = {
                id(each): whole(each.grad.detach()).cpu().numpy() / scale for each in given
            }  # no operation of torch
            found.append(Update(optimizer, {names[each]: array for each, array in arrays.items() if each in names}))

    hook = register_optimizer_step_pre_hook(note)
    try:
        yield found
    finally:
        hook.remove()


def _updating(optimizer: Any) -> Any:
    """What updates the parameters of this rank: torch's ZeroRedundancyOptimizer has those of all ranks."""
    return optimizer.optim if type(optimizer).__name__ == "ZeroRedundancyOptimizer" else optimizer


def stored_weights(module: nn.Module) -> list[StoredWeight]:
    """Every parameter and buffer of a module, without the counters of batch norms. A tied one occurs once."""
    found: dict[int, StoredWeight] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and name.rsplit(".", 1)[-1] not in COUNTERS:
            found.setdefault(id(tensor), StoredWeight(name, ((name, tensor),)))
    return list(found.values())


def slots(optimizer: Any) -> Iterator[Slot]:
    """What an optimizer keeps of every parameter, by torch's own names. The number of steps is one where all are equal.

    An optimizer around another one, such as Lookahead, keeps more in attributes of its own.
    """
    optimizer = _updating(optimizer)
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    kept = [(each, optimizer.state[each]) for each in parameters if each in optimizer.state]
    for kind in dict.fromkeys(key for _, values in kept for key in values):
        values = [(each, state[kind]) for each, state in kept if state.get(kind) is not None]
        if kind == "step" and len({float(value) for _, value in values}) == 1:
            yield Slot(kind, values[0][1])
        elif all(isinstance(value, Tensor) and value.shape == each.shape for each, value in values):
            yield Slot(kind, of=values)
        else:
            yield Slot(kind, [value for _, value in values], nested=True)
    for key, value in vars(optimizer).items():
        if key not in BASE and not key.startswith("_") and not isinstance(value, (bool, int, float)):
            yield Slot(key, value, nested=True)
