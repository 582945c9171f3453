"""Optimizers: one formula each, in torch's semantics, over arrays of any kind; and the variants in which frameworks differ from it.

The formulas are torch.optim's (documentation of 2.x): SGD with momentum and Nesterov (Sutskever et al. 2013), Adam (Kingma & Ba
2015), AdamW (Loshchilov & Hutter 2019), RMSprop (Hinton 2012). The same function is replayed in float64 to judge a framework's
own optimizer, and runs on the framework's own tensors where an exact equivalent is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..errors import UsageError, nearest

# Name of the state of a parameter, by optimizer.
STATE_NAMES = {"sgd": ("momentum",), "adam": ("mean", "square"), "adamw": ("mean", "square"), "rmsprop": ("square",)}
# What a framework's own form is called, and what it says to a porter.
VARIANTS = {
    "eps-hat": "eps is added before the bias correction of the second moment: torch adds it after",
    "eps-inside": "eps stands inside the square root: torch adds it to the root",
    "decoupled": "weight decay shrinks the weight itself: torch adds it to the gradient",
}


@dataclass(frozen=True)
class Optimizer:
    """Settings in torch's terms and with torch's defaults.

    variants: of VARIANTS, where the framework computes otherwise; () is torch's own.
    """

    name: str = "sgd"
    lr: float = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    alpha: float = 0.99
    variants: tuple[str, ...] = ()

    @property
    def state_names(self) -> tuple[str, ...]:
        """The state of every parameter; SGD without momentum keeps none."""
        return () if self.name == "sgd" and not self.momentum else STATE_NAMES[self.name]

    @property
    def plain(self) -> Optimizer:
        return replace(self, variants=())

    def says(self) -> str:
        """``adam, lr 0.001, betas 0.9 and 0.999, eps 1e-08``."""
        parts = [self.name, f"lr {self.lr:g}"]
        if self.name == "sgd" and self.momentum:
            parts.append(f"{'Nesterov ' if self.nesterov else ''}momentum {self.momentum:g}")
        if self.name in ("adam", "adamw"):
            parts.append(f"betas {self.beta1:g} and {self.beta2:g}, eps {self.eps:g}")
        if self.name == "rmsprop":
            parts.append(f"alpha {self.alpha:g}, eps {self.eps:g}")
        if self.weight_decay:
            parts.append(f"weight decay {self.weight_decay:g}")
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Optimizer:
        return cls(**{**values, "variants": tuple(values.get("variants", ()))})


def optimizer(
    name: str,
    lr: float | None = None,
    momentum: float | None = None,
    nesterov: bool = False,
    weight_decay: float | None = None,
) -> Optimizer:
    """An optimizer by its name, with torch's defaults for what is None. Raises UsageError for what torch would refuse."""
    if name not in STATE_NAMES:
        raise UsageError(f"--optimizer is {name!r}{nearest(name, STATE_NAMES)} Known: {', '.join(STATE_NAMES)}")
    rates = {"sgd": 0.01, "adam": 1e-3, "adamw": 1e-3, "rmsprop": 1e-2}
    for option, value in (("lr", lr), ("momentum", momentum), ("weight-decay", weight_decay)):
        if value is not None and not (value >= 0 and math.isfinite(value)):
            raise UsageError(f"--{option} is {value:g}: it must be 0 or more")
    if momentum and name != "sgd":
        raise UsageError(f"--momentum belongs to sgd: {name} is given {momentum:g}")
    if nesterov and not momentum:
        raise UsageError("--nesterov needs --momentum above 0")
    decay = weight_decay if weight_decay is not None else 0.01 if name == "adamw" else 0.0
    rate = rates[name] if lr is None else lr
    return Optimizer(name, rate, momentum=momentum or 0.0, nesterov=nesterov, weight_decay=decay)


def update(
    settings: Optimizer,
    w: Any,
    g: Any,
    optimizer_state: Sequence[Any],
    step: Any,
    sqrt: Callable[[Any], Any],
    powers: tuple[float, float] | None = None,
) -> tuple[Any, list[Any]]:
    """(the new weight, its new optimizer_state) from a weight, its gradient and optimizer_state, arrays or tensors of one shape.

    step: counts from 1. sqrt: of such a tensor. powers: of the betas, where they are not to be computed. It computes with + - * /
    and ** alone, in the order of torch's documentation.
    """
    o = settings
    decoupled = o.name == "adamw" or "decoupled" in o.variants
    if o.weight_decay:
        if decoupled:
            w = w - (o.lr * o.weight_decay) * w
        else:
            g = g + o.weight_decay * w
    if o.name == "sgd":
        if not o.momentum:
            return w - o.lr * g, []
        v = o.momentum * optimizer_state[0] + g
        return w - o.lr * (g + o.momentum * v if o.nesterov else v), [v]
    if o.name == "rmsprop":
        v = o.alpha * optimizer_state[0] + (1 - o.alpha) * (g * g)
        root = sqrt(v + o.eps) if "eps-inside" in o.variants else sqrt(v) + o.eps
        return w - o.lr * (g / root), [v]
    m = o.beta1 * optimizer_state[0] + (1 - o.beta1) * g
    v = o.beta2 * optimizer_state[1] + (1 - o.beta2) * (g * g)
    power1, power2 = powers or (o.beta1**step, o.beta2**step)
    first, second = 1 - power1, 1 - power2
    if "eps-hat" in o.variants:
        return w - (o.lr * second**0.5 / first) * (m / (sqrt(v) + o.eps)), [m, v]
    return w - (o.lr / first) * (m / (sqrt(v) / second**0.5 + o.eps)), [m, v]
