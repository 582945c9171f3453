"""The clipping of gradients in a user's own training step, changed to another limit, or left out."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from torch import nn

from .own_step import Optimizers
from .replaced import replaced

CLIPPING = ("clip_grad_norm_", "clip_grad_value_")  # functions of torch.nn.utils


@contextmanager
def clipped(limit: float, _model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Clip the norm of the gradients of each optimizer at this limit, and in no other way.

    limit: infinity: the gradients are not clipped at all.
    """
    clip = nn.utils.clip_grad_norm_

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        clip([each for group in optimizer.param_groups for each in group["params"]], limit)

    with ExitStack() as changes:
        for name in CLIPPING:
            own = getattr(nn.utils, name)
            for module, attribute in _places(own):
                changes.enter_context(replaced(module, **{attribute: _without_limit(own)}))
        for optimizer in optimizers.values() if math.isfinite(limit) else ():
            changes.callback(optimizer.register_step_pre_hook(before).remove)
        yield


def _without_limit(clip: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch that clips gradients, with a limit that no gradient reaches. It still returns the norm."""

    def unclipped(parameters: Any, _limit: float = math.inf, *args: Any, **settings: Any) -> Any:
        given = {name: value for name, value in settings.items() if name not in ("max_norm", "clip_value")}
        return clip(parameters, math.inf, *args, **given)

    return unclipped


def _places(function: Any) -> list[tuple[ModuleType, str]]:
    """Each module that has a function, and its name there: code may have imported it from torch."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return [(module, name) for module in modules for name, value in list(vars(module).items()) if value is function]
