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

import numpy as np

from ..errors import UsageError, nearest
from ..verdict.limits import UNIT

# Name of the state of a parameter, by optimizer.
STATE_NAMES = {"sgd": ("momentum",), "adam": ("mean", "square"), "adamw": ("mean", "square"), "rmsprop": ("square",)}
# What a framework's own form is called, and what it says to a porter.
VARIANTS = {
    "eps-hat": "eps is added before the bias correction of the second moment: torch adds it after",
    "eps-inside": "eps stands inside the square root: torch adds it to the root",
    "decoupled": "weight decay shrinks the weight itself: torch adds it to the gradient",
}
SAMPLE = 2**16  # values of a tensor on which the floor is measured
REPEATS = 4
EQUAL_RHO, DRIFT_RHO = 3.0, 10.0


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


def judge(
    settings: Optimizer,
    before: np.ndarray,
    gradient: np.ndarray,
    optimizer_state: Sequence[np.ndarray],
    step: int,
    after: np.ndarray,
    state_after: Sequence[np.ndarray],
    times: int = 1,
    gradient_noise: float = 0.0,
    seed: int = 0,
) -> tuple[float, str]:
    """(rho, of what): the change of a weight, and of its state, over what rounding explains; float32 arrays of one shape.

    The step is computed in float64 from the framework's own weight, gradient and state. The floor is measured: how far the
    result moves when all of these move by a unit of rounding, when lr, betas and the other constants are rounded to float32, and
    the powers of the betas too (1 - 0.999 keeps three digits less), and the rounding of the result itself. Both in rms, and by
    value: small gradients, where eps shows, weigh as much as large ones. step: counts from 1. times: how often the weight makes
    its step, where it is the sum of several. gradient_noise: rms by which the gradient of the step may differ from this one.
    """
    given = [array.astype(np.float64).ravel() for array in (before, gradient, *optimizer_state)]
    w, g, state = given[0], given[1], given[2:]
    exact_w, exact_slots = update(settings, w, g, state, step, np.sqrt)
    picked = np.random.default_rng(seed).integers(0, w.size, SAMPLE) if w.size > SAMPLE else np.arange(w.size)
    noise = np.random.default_rng(seed + 1)
    # A framework keeps its constants in float64, or in float32: no other values of theirs are right.
    constants: dict[str, Any] = {
        name: float(np.float32(v)) for name, v in asdict(settings).items() if isinstance(v, float)
    }
    rounded = replace(settings, **constants)
    moves: list[list[np.ndarray]] = [[] for _ in range(1 + len(exact_slots))]
    for _ in range(REPEATS):

        def moved(values: np.ndarray) -> np.ndarray:
            result: np.ndarray = values * (1 + UNIT * noise.uniform(-1, 1, values.shape))
            return result

        part = [moved(array[picked]) for array in given]
        part[1] += gradient_noise * math.sqrt(3) * noise.uniform(-1, 1, part[1].shape)
        # A power in float32 is off by a unit in the last place below one; the first too, where it comes from a logarithm.
        slips = noise.choice((-1.0, 1.0), 2) * UNIT
        power1, power2 = (beta**step + slip for beta, slip in zip((rounded.beta1, rounded.beta2), slips))
        new_w, new_slots = update(rounded, part[0], part[1], part[2:], step, np.sqrt, (power1, power2))
        # The weight itself is exact: what counts is how it changes.
        moves[0].append(times * ((new_w - part[0]) - (exact_w - w)[picked]))
        for kept, new, exact in zip(moves[1:], new_slots, exact_slots):
            kept.append(new - exact[picked])
    names = ("its change", *settings.state_names)
    exact_w = w + times * (exact_w - w)
    worst = (0.0, names[0])
    results = zip(names, (after, *state_after), (exact_w, *exact_slots), moves)
    for name, theirs, exact, floor in results:
        residual = theirs.astype(np.float64).ravel() - exact
        if not np.isfinite(residual).all():
            return math.inf, name
        squares = np.mean(np.square(floor), axis=0) + np.square(UNIT * exact[picked]) / 3
        whole = math.sqrt(float(np.mean(squares)))
        rho = math.sqrt(float(np.mean(np.square(residual)))) / whole if whole else math.inf * bool(residual.any())
        by_value = np.divide(np.square(residual[picked]), squares, out=np.zeros_like(squares), where=squares > 0)
        # A share of the floor by value is luck: four repeats make it far too small now and then. Its median is not.
        typical = math.sqrt(float(np.median(by_value)) / MEDIAN) if by_value.size else 0.0
        worst = max(worst, (max(rho, typical), name))
    return worst


MEDIAN = 0.25  # of the square of an honest residual over its floor


def alternatives(settings: Optimizer) -> list[tuple[str, str, Optimizer]]:
    """(kind, clause, settings): what a wrong port computes instead. The first that explains a step is named."""
    o = settings
    found: list[tuple[str, str, Optimizer]] = []

    def add(kind: str, says: str, **changes: Any) -> None:
        found.append((kind, says, replace(o, **changes)))

    add("torch's form", "is torch's own form", variants=())
    for form, says in VARIANTS.items():
        if form not in o.variants and (form != "eps-hat" or o.name in ("adam", "adamw")):
            if (form == "eps-inside" and o.name != "rmsprop") or (form == "decoupled" and not o.weight_decay):
                continue
            add(form, f"{form}: {says}", variants=(*o.variants, form))
    if o.weight_decay:
        add("weight decay missing", f"weight decay {o.weight_decay:g} is missing", weight_decay=0.0)
        if o.name == "adamw":
            add("coupled", "weight decay is added to the gradient, as Adam's: AdamW shrinks the weight", name="adam")
    if o.name == "sgd" and o.momentum:
        add("nesterov", f"behaves {'without' if o.nesterov else 'with'} Nesterov momentum", nesterov=not o.nesterov)
        add("momentum missing", f"momentum {o.momentum:g} is missing", momentum=0.0, nesterov=False)
    if o.name != "sgd":
        for eps in (1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-3):
            if eps != o.eps:
                add("eps", f"behaves as eps={eps:g}; it should be {o.eps:g}", eps=eps)
    if o.name in ("adam", "adamw"):
        for beta in (0.9, 0.95, 0.98, 0.99, 0.9999):
            if beta != o.beta2:
                add("beta2", f"behaves as beta2={beta:g}; it should be {o.beta2:g}", beta2=beta)
        for beta in (0.0, 0.5, 0.8, 0.95, 0.99):
            if beta != o.beta1:
                add("beta1", f"behaves as beta1={beta:g}; it should be {o.beta1:g}", beta1=beta)
    if o.name == "rmsprop":
        for alpha in (0.9, 0.95, 0.999):
            add("alpha", f"behaves as alpha={alpha:g}; it should be {o.alpha:g}", alpha=alpha)
    return found
