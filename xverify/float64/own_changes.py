"""Changes of the code of a user's own training step, which explanations try and mutations make. Each is a ``Change``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import Unsupported
from ..framework.own_mistake import FACTOR, NOT_ZEROED, SCALED, SETTING, SKIPPED, UNCLIPPED, OwnMistake
from .own_clipping import clipped
from .own_step import Optimizers
from .replaced import hooked, replaced


def planted(mistake: OwnMistake, model: nn.Module, optimizers: Optimizers) -> AbstractContextManager[None]:
    """A context in which a mistake is made. Raises Unsupported where there is no such optimizer."""
    if mistake.optimizer not in optimizers and mistake.what in (SETTING, NOT_ZEROED):
        raise Unsupported(f"the step has no optimizer {mistake.optimizer!r}")
    if mistake.what == SETTING:
        group = optimizers[mistake.optimizer].param_groups[0]
        return settings([mistake.optimizer], changed(group, mistake.setting, mistake.value), model, optimizers)
    if mistake.what == NOT_ZEROED:
        return without_zero_grad([mistake.optimizer], len(optimizers) == 1, model, optimizers)
    if mistake.what == UNCLIPPED:
        return clipped(None, None, model, optimizers)
    if mistake.what == SKIPPED:
        return skipped(dict(model.named_parameters())[mistake.parameter], optimizers)
    assert mistake.what == SCALED
    return scaled()


def changed(group: Mapping[str, Any], setting: str, value: float) -> dict[str, Any]:
    """A setting of a parameter group with another value, as the group has it. setting: see OwnMistake."""
    if setting in ("beta1", "beta2"):
        return {"betas": (value, group["betas"][1]) if setting == "beta1" else (group["betas"][0], value)}
    return {setting: value}


@contextmanager
def settings(
    names: Sequence[str], values: Mapping[str, Any], _model: nn.Module, optimizers: Optimizers
) -> Iterator[None]:
    """Give optimizers other settings."""
    for group in (group for name in names for group in optimizers[name].param_groups):
        group.update(values)
    yield


@contextmanager
def without_zero_grad(
    names: Sequence[str], of_modules: bool, _model: nn.Module, optimizers: Optimizers
) -> Iterator[None]:
    """Leave out ``zero_grad`` of these optimizers. of_modules: that of modules, too."""
    owners = [*(optimizers[name] for name in names), *([nn.Module] if of_modules else [])]
    with ExitStack() as patches:
        for each in owners:
            patches.enter_context(replaced(each, zero_grad=lambda *_args, **_kwargs: None))
        yield


@contextmanager
def skipped(parameter: Tensor, optimizers: Optimizers) -> Iterator[None]:
    """Let no optimizer change a parameter."""
    kept = list[Tensor]()

    def before(*_: Any) -> None:
        kept.append(parameter.detach().clone())

    def after(*_: Any) -> None:
        with torch.no_grad():
            parameter.copy_(kept.pop())

    every = optimizers.values()
    with hooked(
        [hook for each in every for hook in (each.register_step_pre_hook(before), each.register_step_post_hook(after))]
    ):
        yield


@contextmanager
def scaled() -> Iterator[None]:
    """Multiply every loss by FACTOR before its backward pass."""
    backward = Tensor.backward

    def larger(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        backward(FACTOR * tensor, *args, **kwargs)

    with replaced(Tensor, backward=larger):
        yield
