"""The clipping of gradients in a user's own training step: noted, left out, at another limit, or by another rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from .own_step import Optimizers
from .replaced import replaced_everywhere

NORM, VALUE, EACH = "norm", "value", "each"
RULES = {"clip_grad_norm_": NORM, "clip_grad_value_": VALUE}  # functions of torch.nn.utils
# torch's own functions, which are replaced elsewhere while a mistake is made.
OWN: Mapping[str, Callable[..., Any]] = {rule: getattr(nn.utils, name) for name, rule in RULES.items()}
# Clips instead of torch: takes the rule, the parameters, the limit, and what clips as torch does.
Instead = Callable[[str, Any, float, Callable[[], Any]], Any]


@contextmanager
def replaced_clipping(instead: Instead) -> Iterator[None]:
    """Let the user's code call another function in place of torch's."""

    def other(rule: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def called(parameters: Any, *args: Any, **settings: Any) -> Any:
            limit = args[0] if args else settings.get("max_norm", settings.get("clip_value", math.inf))
            chosen = [parameters] if isinstance(parameters, nn.Parameter) else list(parameters)
            return instead(rule, chosen, float(limit), lambda: own(chosen, *args, **settings))

        return called

    with ExitStack() as changes:
        for name, rule in RULES.items():
            own = getattr(nn.utils, name)
            changes.enter_context(replaced_everywhere(own, other(rule, own)))
        yield


@contextmanager
def noted_clipping() -> Iterator[list[tuple[str, float, float]]]:
    """(rule, limit, norm before it) of each call of a function that clips gradients within the context."""
    found = list[tuple[str, float, float]]()

    def noted(rule: str, parameters: Any, limit: float, own: Callable[[], Any]) -> Any:
        found.append((rule, limit, float(clip(None, parameters, limit))))
        return own()

    with replaced_clipping(noted):
        yield found


@contextmanager
def clipped(rule: str | None, limit: float | None, _model: nn.Module, _optimizers: Optimizers) -> Iterator[None]:
    """Clip by another rule, or at another limit, where the code clips. rule: None: nothing is clipped."""
    with replaced_clipping(lambda _, parameters, given, __: clip(rule, parameters, given if limit is None else limit)):
        yield


def clip(rule: str | None, parameters: Any, limit: float) -> Any:
    """Clip gradients, and return their norm before that. rule: None: they are not clipped."""
    given = [each for each in parameters if each.grad is not None]
    norm = OWN[NORM](given, math.inf if rule != NORM else limit)
    if rule == VALUE:
        OWN[VALUE](given, limit)
    for each in given if rule == EACH else ():
        OWN[NORM]([each], limit)
    return norm
