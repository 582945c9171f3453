"""What a user's own training step gives to the optimizers of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from xverify.framework.own_step import Update


@contextmanager
def watched_updates(model: nn.Module) -> Iterator[list[Update]]:
    """The gradients that every optimizer is given within the context, in the order of its calls."""
    found: list[Update] = []
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def note(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        given = [each for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        gradients = {names[id(each)]: each.grad.detach().cpu().numpy().copy() for each in given if id(each) in names}
        found.append(Update(optimizer, gradients))

    hook = register_optimizer_step_pre_hook(note)
    try:
        yield found
    finally:
        hook.remove()
