"""The clipping of gradients in a user's own training step: left out, at another limit, or by another rule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from ..float64.own_clipping import EACH, NORM, VALUE, clip, clipped, noted_clipping
from ..float64.own_step import Optimizers
from ..float64.replaced import hooked
from .own_gradients import LEAST_SCALE
from .own_mistake import FACTOR, Case, Mistake

LIMITS = (1.0, 0.01, 0.05, 0.1, 0.25, 0.5, 2.0, 5.0, 10.0)  # at which gradients are often clipped
SAYS = {
    NORM: "the norm of all gradients together",
    VALUE: "each value of the gradients",
    EACH: "the gradient of each parameter by its own norm",
}


def clipping(case: Case) -> Iterator[Mistake]:
    """Gradients that are not clipped, or that are clipped at another limit or by another rule."""
    given = _given(case)
    if not given:
        yield from _added(case)
        return
    says = "clipping is missing: torch.py clips the gradients, and this step does not"
    yield Mistake("clipping", says, partial(clipped, None, None))
    rules, limits, norms = map(set, zip(*given))
    if len(rules) > 1 or len(limits) > 1:
        return
    (right,), (limit,) = rules, limits
    for rule in (each for each in SAYS if each != right):
        for other in dict.fromkeys((limit, *LIMITS)):
            says = f"the step clips {SAYS[rule]} at {other:g}; torch.py clips {SAYS[right]} at {limit:g}"
            yield Mistake("clipping", says, partial(clipped, rule, other))
    for other in dict.fromkeys((*_fitted(case, limit, (1 - FACTOR) * max(norms)), *LIMITS)):
        if other != limit:
            says = f"the gradients are clipped at {right} {other:g}; torch.py clips them at {limit:g}"
            yield Mistake("clipping", f"{says}{_unscaled(limit / other)}", partial(clipped, right, other))


def _unscaled(factor: float) -> str:
    """What is said of gradients that are clipped at a limit that is too small by this factor."""
    power = math.log2(factor)
    near = abs(power - round(power)) < 1e-3 and factor >= LEAST_SCALE
    return (
        f", as where gradients are clipped before a loss scale of {2 ** round(power):g} is taken out of them"
        if near
        else ""
    )


def _fitted(case: Case, limit: float, most: float) -> Iterator[float]:
    """The limit at which the port clips, where both clip by one norm. most: what no limit reaches that changes a gradient."""
    for factor in (case.port.factor, case.factor()):
        if 0 < limit * factor < most:
            yield float(f"{limit * factor:.4g}")


def _added(case: Case) -> Iterator[Mistake]:
    """The clipping of each optimizer's gradients, where torch.py clips none."""
    gradients = [
        array
        for key, array in case.port.exact[case.port.first].items()
        if key.startswith("gradient/0/") and _of(case, key)
    ]
    norm = math.sqrt(sum(float(np.square(each).sum()) for each in gradients))
    fitted = list(_fitted(case, norm, norm))
    for rule in SAYS:
        for limit in dict.fromkeys((*(fitted if rule == NORM else ()), *LIMITS)):
            what = f"clipped at norm {limit:g}" if rule == NORM else f"clipped at {limit:g} ({SAYS[rule]})"
            says = f"the gradients are {what}, which torch.py does not do"
            yield Mistake("clipping", says, partial(_before_updates, case.names, rule, limit))


def _of(case: Case, key: str) -> bool:
    """Whether a gradient is one that the blamed optimizer is given."""
    weight = case.parameters().get(key.split("/", 2)[2])
    groups = [group for name in case.names for group in case.optimizers[name].param_groups]
    return any(weight is each for group in groups for each in group["params"])


@contextmanager
def _before_updates(
    names: list[str], rule: str, limit: float, _model: nn.Module, optimizers: Optimizers
) -> Iterator[None]:
    """Clip the gradients of each of these optimizers before its updates."""

    def before(optimizer: Any, *_: Any) -> None:
        clip(rule, [each for group in optimizer.param_groups for each in group["params"]], limit)

    with hooked([optimizers[name].register_step_pre_hook(before) for name in names]):
        yield


def _given(case: Case) -> list[tuple[str, float, float]]:
    """(rule, limit, norm before it) of each call of torch's functions in the reference's steps."""
    with noted_clipping() as found:
        for _ in case.steps.drive():
            pass
    return found
