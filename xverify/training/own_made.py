"""One step of a user's own beside the exact one: its weights, and the gradients that optimizers are given. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..results.records import Check
from ..results.verdicts import Verdict
from ..verdict.limits import NULL, OWN_EQUAL
from ..verdict.own_step import OwnStepTruth
from ..weights.canonical import Array
from ..workload.probe import STATISTICS
from .compared import Compared, rms

SAME = 1e-3  # share of a value by which a factor may be off

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Made:
    """One step of a subject beside the exact one.

    number: of the step, from 0.
    all_losses: of every step, as the subject returned them.
    taken: "number/weight/name". watched: "number/gradient/n/name", of an eager run of the same steps.
    exact: "after/name", "change/name" and "gradient/n/name", and the rms of the noise of each value: "noise/change/name" and
        "noise/gradient/n/name". truth: sizes and noise floors of these.
    fused_parameters: see Framework.fused_parameters.
    since: "n/name" of an update -> the first step after the reference's update before it. With accumulated gradients, an update
        has those of all steps since then.
    clips_inside: whether the optimizers may clip the gradients that were watched, where the reference clips its own.
    """

    number: int
    all_losses: Sequence[Mapping[str, float]]
    taken: Arrays
    watched: Arrays
    exact: Arrays
    truth: OwnStepTruth
    fused_parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)
    clips_inside: bool = False

    @property
    def losses(self) -> Mapping[str, float]:
        """The losses of this step."""
        return self.all_losses[self.number]

    @property
    def same(self) -> float:
        """The share of a gradient by which a factor of it may be off."""
        return SAME if self.truth.precision == "float32" else NULL[self.truth.precision]

    def weights(self, statistics: bool) -> list[Weight]:
        """The weights after the step: parameters, or running statistics; in the order in which the reference updates them."""
        names = [key.split("/", 2)[2] for key in self.taken if key.startswith(f"{self.number}/weight/")]
        wanted = [name for name in names if name.endswith(STATISTICS) == statistics and self._parts(name)]
        order = {name: place for place, name in enumerate(dict.fromkeys((*self.truth.optimizers, *self.truth.sizes)))}
        return [Weight.of(self, name) for name in sorted(wanted, key=lambda name: order[self._parts(name)[0]])]

    def _parts(self, name: str) -> tuple[str, ...]:
        """The reference's weights whose sum this is. () for one that is not compared, such as a vector of a spectral norm."""
        parts = self.fused_parameters.get(name, (name,))
        return parts if all(part in self.truth.sizes for part in parts) else ()

    def optimizer(self, name: str) -> str:
        """The optimizer that updates a parameter; "" where that is not known, or the optimizer has no name."""
        return self.truth.optimizers.get(self.fused_parameters.get(name, (name,))[0], "")

    def whose(self, name: str) -> str:
        """A parameter with the optimizer that updates it: ``D.0.weight (optimizer 'd')``."""
        optimizer = self.optimizer(name)
        return f"{name} (optimizer {optimizer!r})" if optimizer else name

    def only(self, names: Sequence[str]) -> str:
        """Name the loss or the optimizer that all differing parameters share, as the end of a sentence; "" when they share none."""
        own = [self.fused_parameters.get(name, (name,))[0] for name in names]
        for whose, says in (
            (self.truth.trained_by, "only weights that loss {!r} trains differ"),
            (self.truth.optimizers, "only weights of optimizer {!r} differ"),
        ):
            those = {whose.get(name, "") for name in own}
            if len(those) == 1 and "" not in those and len(set(whose.values())) > 1:
                return "; " + says.format(*those)
        return ""


@dataclass(frozen=True)
class Weight:
    """A weight after a step.

    compared: its change with the exact one. parts: the reference's weights. precision: the lowest in which the step computes.
    """

    name: str
    found: Array
    after: Array
    change: Array
    compared: Compared
    parts: tuple[str, ...]
    precision: str = "float32"

    @classmethod
    def of(cls, made: Made, name: str) -> Weight:
        """A weight of the subject; where it is a sum of the reference's, the sum of the exact ones."""
        parts = made.fused_parameters.get(name, (name,))
        after = np.sum([made.exact[f"after/{part}"] for part in parts], axis=0)
        change = np.sum([made.exact[f"change/{part}"] for part in parts], axis=0)
        noise = np.zeros(change.shape, np.float32)
        for part in parts:
            noise = np.hypot(noise, made.exact[f"noise/change/{part}"])
        found = made.taken[f"{made.number}/weight/{name}"]
        compared = Compared.of(found - after, change, noise)
        return cls(name, found, after, change, compared, parts, made.truth.precision)

    @property
    def finite(self) -> bool:
        """Whether all values are finite."""
        return bool(np.isfinite(self.found).all())

    @property
    def size(self) -> float:
        """rms of the exact change."""
        return self.compared.size

    @property
    def differs(self) -> bool:
        """Whether it is beyond the limits of EQUAL."""
        return not self.compared.badness(OWN_EQUAL) <= 1

    @property
    def own_change(self) -> Array:
        """What the subject's step has changed; the exact weight before the step is the subject's, too."""
        change: Array = self.found - (self.after - self.change)
        return change

    @property
    def moved(self) -> bool:
        """Whether the subject's step has changed any value. The weight before the step was float32."""
        return not np.array_equal(self.found, (self.after - self.change).astype(np.float32))

    @property
    def rounding_alone(self) -> bool:
        """Whether rounding changes it so much that no fault could show."""
        return self.size > 0 and not self.compared.determined(self.precision)

    @property
    def judged(self) -> int:
        """The number of values in which a fault could show."""
        return self.compared.judged(self.precision)


# -- gradients --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gradients:
    """The gradients that the optimizers of a subject were given.

    seen: whether any could be seen.
    differing: parameter whose gradient differs -> what a report says. factors: parameter -> the factor by which it differs from
        the right one; NaN when it is no multiple of that.
    ratio, group_ratio: the largest residual / noise floor, and the same in the worst group. compared: number of compared gradients.
    limits: parameter -> its detection limit. worst_limit: the largest in any group.
    shares: parameter whose gradient differs -> the residual as a share of the gradient.
    """

    seen: bool = False
    differing: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    ratio: float = 0.0
    compared: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)
    group_ratio: float = 0.0
    limits: Mapping[str, float] = field(default_factory=dict)
    worst_limit: float | None = None

    def check(self, made: Made, verdict: Verdict, says: str = "", difference: str = "") -> Check:
        """The check of the gradients with this verdict."""
        known = len(made.truth.gradient_sizes)
        if not self.compared and verdict <= Verdict.EQUAL:
            says = "every gradient consists of rounding alone"
            return Check("gradients", made.number, Verdict.UNTESTED, says=says, known=known)
        return Check(
            "gradients", made.number, verdict, self.ratio, says, difference, self.compared, known,
            self.group_ratio, dict(self.limits), self.worst_limit,
        )  # fmt: skip

    def says(self, made: Made, names: Sequence[str]) -> str:
        """What differs in the gradients of these parameters: the first, and what is common to all of them."""
        factor = shared([self.factors[name] for name in names if name in self.factors], made.same)
        says = self.differing[names[0]] + factor_says(factor, "it is {} times the right one", made.same)
        return says + made.only(list(self.differing))


def compare_gradients(made: Made) -> Gradients:
    """Compare what the optimizers were given, update by update; nothing where the reference makes no update."""
    prefix = f"{made.number}/gradient/"
    found = {key.removeprefix(prefix) for key in made.watched if key.startswith(prefix)}
    if not found or not made.truth.gradient_sizes:
        return Gradients()
    own = {part: name for name, parts in made.fused_parameters.items() for part in parts}
    differing, factors, compared = dict[str, str](), dict[str, float](), 0
    shares, judged = dict[str, float](), dict[str, Compared]()
    for key, size in made.truth.gradient_sizes.items():
        count, name = key.split("/", 1)
        name = own.get(name, name)
        exact, noise = made.exact[f"gradient/{key}"], made.exact[f"noise/gradient/{key}"]
        if (
            not size
            or name in differing
            or not Compared.of(exact - exact, exact, noise).determined(made.truth.precision)
        ):
            continue
        compared += 1
        if f"{count}/{name}" not in found:
            differing[name] = f"{made.whose(name)} is given to {_times(count)} in a step: {_updates(made, key)}"
            continue
        gradient = _given(made, f"{count}/{name}", made.since.get(key, made.number), exact)
        if gradient.shape != exact.shape:
            differing[name] = f"{made.whose(name)}: its gradient has shape {gradient.shape}, not {exact.shape}"
            continue
        beside = judged[key] = Compared.of(gradient - exact, exact, noise)
        if not beside.badness(OWN_EQUAL) <= 1:
            what = "the error of the gradient that its optimizer is given"
            differing[name] = f"{made.whose(name)}: {what} is {beside.says(OWN_EQUAL)} its noise floor"
            factors[name] = scale(gradient, exact, made.same)
            shares[name] = rms(gradient - exact) / size
    if made.clips_inside and max((shares.get(name, math.inf) for name in differing), default=0.0) > SAME:
        return Gradients()  # they are not those that the optimizers use
    return Gradients(
        seen=True,
        differing=differing,
        factors=factors,
        ratio=max((each.ratio for each in judged.values()), default=0.0),
        compared=compared,
        shares=shares,
        group_ratio=max((each.groups.ratio for each in judged.values()), default=0.0),
        limits={key: each.limit() for key, each in judged.items()},
        worst_limit=max((each.worst_limit() for each in judged.values()), default=None),
    )


def of_parameters(sizes: Mapping[str, float]) -> dict[str, float]:
    """Parameter -> the largest size of its gradients in a step. sizes: see OwnStepTruth.gradient_sizes."""
    found = dict[str, float]()
    for key, size in sizes.items():
        name = key.split("/", 1)[1]
        found[name] = max(found.get(name, 0.0), size)
    return found


def _given(made: Made, key: str, since: int, exact: Array) -> Array:
    """The gradient that an optimizer is given in an update.

    An optimizer that accumulates by itself, such as one of Keras with gradient_accumulation_steps, is given that of each step
    since the update before. Then it is the mean or the sum of these, where that is nearer to the exact one.
    """
    keys = [f"{number}/gradient/{key}" for number in range(since, made.number + 1)]
    given = [made.watched[each].astype(np.float64) for each in keys if each in made.watched]
    if len(given) < max(2, len(keys)) or given[-1].shape != exact.shape:
        return given[-1]
    total = np.sum(given, axis=0)
    return min((given[-1], total, total / len(given)), key=lambda gradient: rms(gradient - exact))


def _times(count: str) -> str:
    return "no optimizer" if count == "0" else f"an optimizer {count} time{'s' if count != '1' else ''} only"


def _updates(made: Made, key: str) -> str:
    name = key.split("/", 1)[1]
    count = sum(other.split("/", 1)[1] == name for other in made.truth.gradient_sizes)
    return f"the reference updates it {'once' if count == 1 else f'{count} times'}"


def scale(found: Array, exact: Array, same: float = SAME) -> float:
    """The factor of the right value, when all of the value is a multiple of it; NaN when it is not. same: see ``Made.same``."""
    size = float(np.vdot(exact, exact))
    factor = float(np.vdot(found, exact)) / size if size else math.nan
    return factor if rms(found - factor * exact) <= same * rms(exact) * max(1.0, abs(factor)) else math.nan


def shared(factors: Sequence[float], same: float = SAME) -> float:
    """The factor that several weights share; NaN when they have different ones, or none. same: see ``Made.same``."""
    agree = bool(factors) and all(abs(factor - factors[0]) <= same * abs(factors[0]) for factor in factors)
    return factors[0] if agree else math.nan


def factor_says(factor: float, says: str, same: float = SAME) -> str:
    """What a report says of a value that is a multiple of the right one; "" when the factor is 1. same: see ``Made.same``."""
    if abs(factor + 1) <= same:
        return ": it has the opposite sign"
    if abs(factor - 1) <= same or not math.isfinite(factor):
        return ""
    return f": {says.format(f'{factor:.4g}')}"
