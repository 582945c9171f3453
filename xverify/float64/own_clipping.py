"""The clipping of gradients in a user's own training step: noted, changed to another limit, or left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from .own_step import Optimizers
from .replaced import replaced_everywhere

CLIPPING = ("clip_grad_norm_", "clip_grad_value_")  # functions of torch.nn.utils
# What is clipped -> how a report says it.
WHAT = {
    "all": "the gradients are clipped at norm {:g}",
    "each": "the gradient of each parameter is clipped at norm {:g}",
    "values": "the values of the gradients are clipped at {:g}",
}


@contextmanager
def noted_clipping() -> Iterator[list[str]]:
    """The names of the functions of torch that clip gradients within the context, one for each call."""
    found = list[str]()

    def noting(name: str, clip: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **more: Any) -> Any:
            found.append(name)
            return clip(*args, **more)

        return noted

    with ExitStack() as changes:
        for name in CLIPPING:
            own = getattr(nn.utils, name)
            changes.enter_context(replaced_everywhere(own, noting(name, own)))
        yield found


@contextmanager
def clipped(limit: float, what: str, _model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Clip the gradients of each optimizer at this limit, and in no other way.

    limit: infinity: the gradients are not clipped at all. what: a key of WHAT.
    """
    clip_norm, clip_value = nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        if what == "all":
            clip_norm(parameters, limit)
        for each in parameters if what == "each" else ():
            clip_norm([each], limit)
        if what == "values":
            clip_value(parameters, limit)

    with ExitStack() as changes:
        for name in CLIPPING:
            own = getattr(nn.utils, name)
            changes.enter_context(replaced_everywhere(own, _without_limit(own)))
        for optimizer in optimizers.values() if math.isfinite(limit) else ():
            changes.callback(optimizer.register_step_pre_hook(before).remove)
        yield


def _without_limit(clip: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch that clips gradients, with a limit that no gradient reaches. It still returns the norm."""

    def unclipped(parameters: Any, _limit: float = math.inf, *args: Any, **settings: Any) -> Any:
        given = {name: value for name, value in settings.items() if name not in ("max_norm", "clip_value")}
        return clip(parameters, math.inf, *args, **given)

    return unclipped
