"""Optimizers: the formula of each in torch, over arrays of any kind, and the formula variants of other frameworks.

The formulas are those of torch.optim (documentation of 2.x): SGD with momentum and Nesterov (Sutskever et al. 2013), Adam (Kingma &
Ba 2015), AdamW (Loshchilov & Hutter 2019), RMSprop (Hinton 2012), Adagrad (Duchi et al. 2011). Lion, which torch does not have, is
that of Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", with the defaults of their code. The formula of Adafactor
is in adafactor.py. The same function computes the exact step in float64, and the step in a framework's own tensors where the user
asks for torch's mathematics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import UsageError, nearest
from . import adafactor
from .operations import Operations, Tensor, of_numpy
from .recipe import NO_RECIPE, Recipe

# Optimizer -> names of the arrays of state that it keeps for every parameter.
# AMSGrad adds "largest".
STATE_NAMES = {
    "sgd": ("momentum",),
    "adam": ("mean", "square"),
    "adamw": ("mean", "square"),
    "rmsprop": ("square",),
    "adagrad": ("sum",),
    "lion": ("momentum",),
    "adafactor": ("row", "column", "square"),
}
DECOUPLED = ("adamw", "lion", "adafactor")  # their weight decay shrinks the weight itself
# Formula variant -> how it differs from torch's formula.
VARIANTS = {
    "eps-hat": "eps is added before the bias correction of the second moment: torch adds it after",
    "eps-inside": "eps stands inside the square root: torch adds it to the root",
    "decoupled": "weight decay shrinks the weight itself: torch adds it to the gradient",
    "corrected maximum": "AMSGrad keeps the largest of the corrected second moments: torch corrects the largest of the plain ones",
    "eps-added": "eps² is added to the squares of the gradients: torch keeps their estimate from falling below eps², and the mean "
    "by which it divides below eps",
    adafactor.OTHER_AXES: "the means of the squares are taken over other axes of a kernel, or it is too small to have them: torch "
    "takes the last two axes",
    "decayed scale": "the step is scaled with the size of the weight after its decay: torch takes the size before it",
    "unlimited rate": "the learning rate may be larger than 1/√step: torch limits it",
}


@dataclass(frozen=True)
class Optimizer:
    """The settings of an optimizer, in torch's terms and with torch's defaults.

    name: a key of STATE_NAMES.
    lr: learning rate.
    momentum, nesterov: used by sgd alone.
    beta1, beta2: used by adam, adamw and lion alone.
    eps: used by all optimizers except sgd and lion.
    alpha: used by rmsprop alone.
    eps2, threshold, beta2_decay: used by adafactor alone: the smallest size of a weight that scales its step, the rms to which a
        step is clipped, and the power of the number of the step that weighs its gradient.
    variants: formula variants, keys of VARIANTS; () is torch's own formula. Those of a framework's own facilities for the recipe
        are keys of recipe.DIFFERENCES.
    recipe: what is set around the formula. Its groups have learning rates and weight decays of their own.
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
    eps2: float = 1e-3
    threshold: float = 1.0
    beta2_decay: float = -0.8
    variants: tuple[str, ...] = ()
    recipe: Recipe = NO_RECIPE

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the arrays of state of a parameter; SGD without momentum keeps none."""
        if self.name == "sgd" and not self.momentum:
            return ()
        return (*STATE_NAMES[self.name], "largest") if self.recipe.amsgrad else STATE_NAMES[self.name]

    def groups(self, names: Iterable[str]) -> dict[tuple[float, float], list[str]]:
        """(learning rate, weight decay) -> the parameters that have both, of these."""
        found: dict[tuple[float, float], list[str]] = {}
        for name in names:
            own = self.of(name)
            found.setdefault((own.lr, own.weight_decay), []).append(name)
        return found

    def keys(self, names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """A framework's names of the state, in the order of ``state_names``. names: of all that each optimizer may keep."""
        return names[self.name][: len(self.state_names)]

    @property
    def plain(self) -> Optimizer:
        """The same settings with torch's own formula."""
        return replace(self, variants=())

    def of(self, name: str, factor: float = 1.0) -> Optimizer:
        """The settings of one parameter, with those of its group. factor: of the schedule, which multiplies the learning rate."""
        group = self.recipe.group_of(name)
        lr = self.lr if group is None or group.lr is None else group.lr
        decay = self.weight_decay if group is None or group.weight_decay is None else group.weight_decay
        return replace(self, lr=lr * factor, weight_decay=decay)

    def says(self) -> str:
        """The settings in one line, for example ``adam, lr 0.001, betas 0.9 and 0.999, eps 1e-08``."""
        parts = [self.name, f"lr {self.lr:g}"]
        if self.name == "sgd" and self.momentum:
            parts.append(f"{'Nesterov ' if self.nesterov else ''}momentum {self.momentum:g}")
        if self.name in ("adam", "adamw"):
            parts.append(f"betas {self.beta1:g} and {self.beta2:g}, eps {self.eps:g}")
        if self.name == "lion":
            parts.append(f"betas {self.beta1:g} and {self.beta2:g}")
        if self.name == "rmsprop":
            parts.append(f"alpha {self.alpha:g}, eps {self.eps:g}")
        if self.name == "adagrad":
            parts.append(f"eps {self.eps:g}")
        if self.name == "adafactor":
            parts.append(
                f"decay {self.beta2_decay:g}, threshold {self.threshold:g}, eps {self.eps:g} and {self.eps2:g}"
            )
        if self.weight_decay:
            parts.append(f"weight decay {self.weight_decay:g}")
        if self.recipe.amsgrad:
            parts.append("AMSGrad")
        return ", ".join([*parts, *self.recipe.says()])


def optimizer(
    name: str,
    lr: float | None = None,
    momentum: float | None = None,
    nesterov: bool = False,
    weight_decay: float | None = None,
    recipe: Recipe = NO_RECIPE,
) -> Optimizer:
    """Check the options of the command line, and fill in torch's defaults; for lion, those of its authors.

    name: a key of STATE_NAMES.
    lr, momentum, weight_decay: torch's default when omitted.
    recipe: what is set around the formula.
    Raises UsageError for a value that torch refuses.
    """
    if name not in STATE_NAMES:
        raise UsageError(f"--optimizer is {name!r}{nearest(name, STATE_NAMES)} Known: {', '.join(STATE_NAMES)}")
    rates = {"sgd": 0.01, "adam": 1e-3, "adamw": 1e-3, "rmsprop": 1e-2, "lion": 1e-4}
    rates |= {"adagrad": 1e-2, "adafactor": 1e-2}
    for option, value in (("lr", lr), ("momentum", momentum), ("weight-decay", weight_decay)):
        if value is not None and not (value >= 0 and math.isfinite(value)):
            raise UsageError(f"--{option} is {value:g}: it must be 0 or more")
    if momentum and name != "sgd":
        raise UsageError(f"--momentum belongs to sgd: {name} is given {momentum:g}")
    if nesterov and not momentum:
        raise UsageError("--nesterov needs --momentum above 0")
    if recipe.amsgrad and name not in ("adam", "adamw"):
        raise UsageError(f"AMSGrad belongs to adam and adamw; the optimizer is {name}")
    decay = weight_decay if weight_decay is not None else 0.01 if name == "adamw" else 0.0
    found = Optimizer(
        name,
        rates[name] if lr is None else lr,
        momentum=momentum or 0.0,
        nesterov=nesterov,
        weight_decay=decay,
        recipe=recipe,
    )
    changes: dict[str, dict[str, float]] = {"lion": {"beta2": 0.99}, "adafactor": {"eps": adafactor.EPS}}
    changes["adagrad"] = {"eps": 1e-10}
    return replace(found, **changes.get(name, {}))  # type: ignore[arg-type]


def update(
    settings: Optimizer,
    w: Tensor,
    g: Tensor,
    optimizer_state: Sequence[Tensor],
    step: Any,  # a number, or a scalar tensor
    ops: Operations | None = None,
    *,
    powers: tuple[float, float] | None = None,
    axes: adafactor.Factored | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Make one step of an optimizer: (the new weight, its new state).

    It computes in the order of torch's documentation.

    w, g: the weight and its gradient, of one shape.
    optimizer_state: the arrays that ``Optimizer.state_names`` names, of the same shape.
    step: number of this step, from 1.
    ops: the operations of such tensors; numpy's when omitted.
    powers: (beta1**step, beta2**step); computed when omitted.
    axes: see adafactor.Factored; torch's when omitted. Only adafactor needs them.
    """
    o, ops = settings, ops or of_numpy()
    if o.name == "adafactor":
        taken = adafactor.last_two(len(w.shape)) if axes is None else axes
        return adafactor.update(o, w, g, optimizer_state, step, taken, ops)
    decoupled = o.name in DECOUPLED or "decoupled" in o.variants
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
    if o.name == "lion":
        m = optimizer_state[0]
        return w - o.lr * ops.sign(lion_mix(o, m, g)), [o.beta2 * m + (1 - o.beta2) * g]
    if o.name == "adagrad":
        total = optimizer_state[0] + g * g
        return w - o.lr * (g / _root(o, total, ops)), [total]
    if o.name == "rmsprop":
        square = o.alpha * optimizer_state[0] + (1 - o.alpha) * (g * g)
        return w - o.lr * (g / _root(o, square, ops)), [square]
    return _adam(o, w, g, optimizer_state, powers or (o.beta1**step, o.beta2**step), ops)


def update_sum(
    parts: int,
    settings: Optimizer,
    w: Tensor,
    g: Tensor,
    optimizer_state: Sequence[Tensor],
    step: Any,
    ops: Operations,
    axes: adafactor.Factored | None,
) -> tuple[Tensor, list[Tensor]]:
    """``update`` of a weight that is the sum of this number of torch's parameters; 1 for most."""
    new, after = update(settings, w, g, optimizer_state, step, ops, axes=axes)
    # Each of the parts changes by the same amount, so their sum changes by a multiple of it.
    return (new if parts == 1 else w + parts * (new - w)), after


def _root(o: Optimizer, square: Tensor, ops: Operations) -> Tensor:
    """What rmsprop and adagrad divide a gradient by. square: its mean square, or the sum of its squares."""
    return ops.sqrt(square + o.eps) if "eps-inside" in o.variants else ops.sqrt(square) + o.eps


def _adam(
    o: Optimizer, w: Tensor, g: Tensor, optimizer_state: Sequence[Tensor], powers: tuple[Any, Any], ops: Operations
) -> tuple[Tensor, list[Tensor]]:
    """A step of Adam and of AdamW after the weight decay. The arguments are those of ``update``."""
    m = o.beta1 * optimizer_state[0] + (1 - o.beta1) * g
    v = o.beta2 * optimizer_state[1] + (1 - o.beta2) * (g * g)
    first, second = 1 - powers[0], 1 - powers[1]
    after, divisor = [m, v], v
    if o.recipe.amsgrad:
        corrected = "corrected maximum" in o.variants
        divisor = ops.maximum(optimizer_state[2], v / second if corrected else v)
        after = [m, v, divisor]
        if corrected:
            return w - (o.lr / first) * (m / (ops.sqrt(divisor) + o.eps)), after
    if "eps-hat" in o.variants:
        return w - (o.lr * second**0.5 / first) * (m / (ops.sqrt(divisor) + o.eps)), after
    return w - (o.lr / first) * (m / (ops.sqrt(divisor) / second**0.5 + o.eps)), after


def lion_mix(o: Optimizer, momentum: Tensor, gradient: Tensor) -> Tensor:
    """What lion takes the sign of."""
    return o.beta1 * momentum + (1 - o.beta1) * gradient
