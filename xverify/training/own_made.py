"""One step of a user's own beside the exact one: its weights, and the gradients that optimizers are given. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..results.records import Check
from ..results.verdicts import Verdict
from ..verdict.judgement import OWN_EQUAL
from ..verdict.limits import NULL
from ..verdict.own_step import OwnStepTruth
from ..weights.canonical import Array
from ..workload.probe import STATISTICS
from .step import rms

SAME = 1e-3  # share of a value by which a factor may be off

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Made:
    """One step of a subject beside the exact one.

    number: of the step, from 0.
    losses: as the subject's step returned them.
    taken: "number/weight/name". watched: "number/gradient/n/name", of an eager run of the same steps.
    exact: "after/name", "change/name" and "gradient/n/name". truth: sizes and noise floors of these.
    fused_parameters: see Framework.fused_parameters.
    """

    number: int
    losses: Mapping[str, float]
    taken: Arrays
    watched: Arrays
    exact: Arrays
    truth: OwnStepTruth
    fused_parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

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
        """What is common to parameters that differ, as the end of a sentence: the loss that trains them, or their optimizer."""
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
    """A weight after a step. size: rms of its exact change. floor: rms of the noise in that. parts: the reference's weights."""

    name: str
    found: Array
    after: Array
    change: Array
    size: float
    floor: float
    parts: tuple[str, ...]

    @classmethod
    def of(cls, made: Made, name: str) -> Weight:
        """A weight of the subject; where it is a sum of the reference's, the sum of the exact ones."""
        parts = made.fused_parameters.get(name, (name,))
        after = np.sum([made.exact[f"after/{part}"] for part in parts], axis=0)
        change = np.sum([made.exact[f"change/{part}"] for part in parts], axis=0)
        floor = math.hypot(*(made.truth.floors[part] for part in parts))
        return cls(name, made.taken[f"{made.number}/weight/{name}"], after, change, rms(change), floor, parts)

    @property
    def finite(self) -> bool:
        """Whether all values are finite."""
        return bool(np.isfinite(self.found).all())

    @property
    def residual(self) -> float:
        """rms of the difference from the exact weight."""
        return rms(self.found - self.after)

    @property
    def ratio(self) -> float:
        """Residual / noise floor."""
        return self.residual / self.floor if self.floor else math.inf * bool(self.residual)

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
        return self.size > 0 and self.floor > NULL["float32"] * self.size


# -- gradients --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gradients:
    """The gradients that the optimizers of a subject were given.

    seen: whether any could be seen.
    differing: parameter whose gradient differs -> what a report says. factors: parameter -> the factor by which it differs from
        the right one; NaN when it is no multiple of that.
    ratio: the largest residual / noise floor. compared: number of compared gradients.
    share: the largest residual of one that differs, as a share of the gradient.
    """

    seen: bool = False
    differing: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    ratio: float = 0.0
    compared: int = 0
    share: float = 0.0

    def check(self, made: Made, verdict: Verdict, says: str = "", difference: str = "") -> Check:
        """The check of the gradients with this verdict."""
        known = len(made.truth.gradient_sizes)
        return Check("gradients", made.number, verdict, self.ratio, says, difference, self.compared, known)

    def says(self, made: Made, names: Sequence[str]) -> str:
        """What differs in the gradients of these parameters: the first, and what is common to all of them."""
        factors = [self.factors[name] for name in names if name in self.factors]
        says = self.differing[names[0]]
        if factors and all(abs(factor - factors[0]) <= SAME * abs(factors[0]) for factor in factors):
            says += factor_says(factors[0], "it is {} times the right one")
        return says + made.only(list(self.differing))


def compare_gradients(made: Made) -> Gradients:
    """Compare what the optimizers were given, update by update."""
    prefix = f"{made.number}/gradient/"
    found = {key.removeprefix(prefix): key for key in made.watched if key.startswith(prefix)}
    if not found:
        return Gradients()
    own = {part: name for name, parts in made.fused_parameters.items() for part in parts}
    differing, factors, worst, compared = dict[str, str](), dict[str, float](), 0.0, 0
    shares: list[float] = []
    for key, size in made.truth.gradient_sizes.items():
        count, name = key.split("/", 1)
        name = own.get(name, name)
        if not size or made.truth.gradient_floors[key] > NULL["float32"] * size or name in differing:
            continue
        compared += 1
        if f"{count}/{name}" not in found:
            differing[name] = f"{made.whose(name)} is given to {_times(count)} in a step: {_updates(made, key)}"
            continue
        gradient, exact = made.watched[found[f"{count}/{name}"]].astype(np.float64), made.exact[f"gradient/{key}"]
        if gradient.shape != exact.shape:
            differing[name] = f"{made.whose(name)}: its gradient has shape {gradient.shape}, not {exact.shape}"
            continue
        ratio = quotient(rms(gradient - exact), made.truth.gradient_floors[key])
        worst = max(worst, ratio)
        if not ratio <= OWN_EQUAL:
            what = "the error of the gradient that its optimizer is given"
            differing[name] = f"{made.whose(name)}: {what} is {ratio:.3g} x its noise floor"
            factors[name] = scale(gradient, exact)
            shares.append(rms(gradient - exact) / size)
    return Gradients(True, differing, factors, worst, compared, max(shares, default=math.inf))


def _times(count: str) -> str:
    return "no optimizer" if count == "0" else f"an optimizer {count} time{'s' if count != '1' else ''} only"


def _updates(made: Made, key: str) -> str:
    name = key.split("/", 1)[1]
    count = sum(other.split("/", 1)[1] == name for other in made.truth.gradient_sizes)
    return f"the reference updates it {'once' if count == 1 else f'{count} times'}"


def scale(found: Array, exact: Array) -> float:
    """The factor of the right value, when all of the value is a multiple of it; NaN when it is not."""
    size = float(np.vdot(exact, exact))
    factor = float(np.vdot(found, exact)) / size if size else math.nan
    return factor if rms(found - factor * exact) <= SAME * rms(exact) * max(1.0, abs(factor)) else math.nan


def quotient(residual: float, floor: float) -> float:
    """Residual / noise floor; infinite for a residual without a floor."""
    return residual / floor if floor else math.inf * bool(residual)


def factor_says(factor: float, says: str) -> str:
    """What a report says of a value that is a multiple of the right one; "" when the factor is 1."""
    if abs(factor + 1) <= SAME:
        return ": it has the opposite sign"
    if abs(factor - 1) <= SAME or not math.isfinite(factor):
        return ""
    return f": {says.format(f'{factor:.4g}')}"
