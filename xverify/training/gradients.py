"""The check of gradients: that of every parameter, against the noise of the whole model. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..results.records import Check
from ..results.verdicts import Verdict
from ..verdict import limits
from ..weights.canonical import Array
from .compared import Compared, Coverage, rms, rounding_alone
from .precision_checks import UNDERFLOW, common_factor
from .step import Distance, Step

# A gradient that is the right one times 1 + this, or more, is wrong, however large the noise of all layers is.
ODD = 0.1


@dataclass
class Gradients:
    """The gradients of a subject, sorted by what was found. Names are the subject's; those in ``away`` are the reference's.

    away: gradients that can be judged -> what a comparison with the exact gradient shows.
    missing: parameters without a gradient. zero: gradients that are zero although the exact one is not.
    null: gradients that consist of rounding alone, so that no fault could show in them. Those beyond their noise are in ``away``.
    known: number of gradients of the reference.
    broken: what is wrong with the first gradient of another shape, or with NaN or infinity; "" when there is none.
    """

    away: dict[str, Compared] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    zero: list[str] = field(default_factory=list)
    null: list[str] = field(default_factory=list)
    known: int = 0
    broken: str = ""

    @classmethod
    def of(cls, step: Step, distance: Distance, coverage: Coverage) -> Gradients:
        """Sort the gradients of this step. distance, coverage: every judged gradient is added to them."""
        gradients, nothing = cls(), rounding_alone(step.truth.sizes)
        for name in step.truth.floors:
            if name in step.frozen:
                continue
            own = step.own(name)
            if step.stored(own) != name:
                continue  # the second of several parameters that the framework stores as one
            gradients.known += 1
            beside = gradients._add(step, name, own, distance)
            if gradients.broken:
                break
            if beside is not None and name not in nothing:
                coverage.add("gradients", own, beside.count, beside.judged(step.recipe.precision))
        coverage.untested += gradients.null
        return gradients

    def _add(self, step: Step, name: str, own: str, distance: Distance) -> Compared | None:
        """Sort one gradient, and compare it. name: its name in the reference. own: its name in the subject."""
        if f"gradient/{own}" not in step.taken:
            self.missing.append(own)
            return None
        gradient, exact = step.taken[f"gradient/{own}"], step.exact[f"gradient/{name}"]
        if gradient.shape != exact.shape:
            self.broken = f"{own}: its gradient has shape {gradient.shape}, not {exact.shape}"
            return None
        if not np.isfinite(gradient).all():
            self.broken = f"{own}: its gradient has NaN or infinity"
            return None
        residual = gradient - exact
        beside = Compared.of(residual, exact, step.exact[f"noise/gradient/{name}"])
        vague = not beside.size or not beside.determined(step.recipe.precision)
        if vague and beside.badness(limits.COHERENT_RHO, limits.DRIFT_C) <= 1:
            self.null.append(own)
        elif not gradient.any() and not vague:
            self.zero.append(own)
        else:
            if not vague:
                distance.add(residual, exact)
            self.away[name] = beside
        return beside


def judge_gradients(
    step: Step,
    more_rounding: float | None,
    noise_with: Callable[[float], Mapping[str, Array]],
    coverage: Coverage,
    distance: Distance,
) -> Check:
    """Judge the gradient of every parameter against the noise of the whole model.

    more_rounding: Local.more_rounding.
    noise_with: computes the rms of the noise of each value for a multiple of float32's rounding; called only when needed.
    coverage: gets what is judged, and the names of parameters that cannot be.
    distance: see Gradients.of.
    """
    gradients = Gradients.of(step, distance, coverage)
    away = gradients.away
    equal, of_groups = (limits.COHERENT_RHO,) * 2 if more_rounding else (limits.EQUAL_RHO, limits.EQUAL_C)

    def check(verdict: Verdict, ratio: float | None, says: str = "") -> Check:
        return _of_gradients(step, gradients, of_groups, verdict, ratio, says)

    if gradients.broken:
        return Check("gradients", step.number, Verdict.INVALID, math.inf, gradients.broken, known=gradients.known)
    if gradients.missing:
        says = f"the reference trains {few(gradients.missing)}, and the port does not"
        says += ": frozen, or not a parameter in this framework"
        return check(Verdict.DIFFERENT, math.inf, says)
    if gradients.zero:
        says = f"{few(gradients.zero)}: the gradient is zero: {_why_zero(step)}"
        return check(Verdict.DIFFERENT, math.inf, says)
    if not away:
        return check(Verdict.UNTESTED, None, "every gradient consists of rounding alone")
    place, worst = max(away.items(), key=lambda each: each[1].badness(equal, of_groups))
    if worst.badness(equal, of_groups) <= 1:
        return check(Verdict.EQUAL, max(each.ratio for each in away.values()))
    noise = "the noise of all layers"
    if more_rounding:
        larger = _with_more(step, away, noise_with(more_rounding))
        place, worst = max(larger.items(), key=lambda each: each[1].badness(limits.EQUAL_RHO))
        if worst.badness(limits.EQUAL_RHO) <= 1:
            return _explained_by_kinks(step, gradients, larger, more_rounding, coverage)
        noise = f"the noise of layers that round {more_rounding:.3g} times as much as float32"
    says = f"{place}: its error is {worst.says(limits.EQUAL_RHO)} {noise}"
    return _wrong_gradients(step, gradients, place, worst, says)


def _of_gradients(
    step: Step, found: Gradients, of_groups: float, verdict: Verdict, ratio: float | None, says: str
) -> Check:
    """The check of gradients. of_groups: the limit of the ratio in a group that is EQUAL."""
    groups, precision = found.away.values(), step.recipe.precision
    judged = {name: each for name, each in found.away.items() if each.size and each.determined(precision)}
    return Check(
        "gradients", step.number, verdict, ratio, says, "", len(judged), found.known,
        max((each.groups.ratio for each in groups), default=None),
        {name: each.limit(of_groups) for name, each in judged.items()},
        max((each.worst_limit(of_groups) for each in judged.values()), default=None),
    )  # fmt: skip


def _with_more(step: Step, away: Mapping[str, Compared], noise: Mapping[str, Array]) -> dict[str, Compared]:
    """The gradients that are beyond what right layers may add up to, beside the noise of more rounding."""
    beyond = [name for name, each in away.items() if each.badness(*(limits.COHERENT_RHO,) * 2) > 1]
    found = {}
    for name in beyond:
        exact = step.exact[f"gradient/{name}"]
        both = np.maximum(noise[name], step.exact[f"noise/gradient/{name}"])
        found[name] = Compared.of(step.taken[f"gradient/{step.own(name)}"] - exact, exact, both)
    return found


def _explained_by_kinks(
    step: Step, found: Gradients, larger: Mapping[str, Compared], times: float, coverage: Coverage
) -> Check:
    """The check of gradients that differ because activations cross their kinks.

    larger: these, beside the noise of more rounding. times: the multiple of float32's.
    """
    ratio = max(each.ratio for each in larger.values())
    loose = [name for name, each in larger.items() if not each.determined(step.recipe.precision)]
    coverage.untested += loose
    place = max(larger, key=lambda name: found.away[name].badness(limits.COHERENT_RHO))
    first = found.away[place].says(limits.COHERENT_RHO, limits.COHERENT_RHO)
    says = f"{place}: its error is {first} the noise of all layers; {times:.3g} times the rounding explains it"
    says += ", because activations cross their kinks"
    check = _of_gradients(
        step, replace(found, away={**found.away, **larger}), limits.COHERENT_RHO, Verdict.EQUAL, ratio, says
    )
    return check if check.compared else replace(check, verdict=Verdict.UNTESTED)


def _wrong_gradients(step: Step, found: Gradients, place: str, worst: Compared, says: str) -> Check:
    """The check of gradients that differ. place, worst: the one that is farthest away. says: how far."""

    def check(verdict: Verdict, text: str) -> Check:
        ratio = max(worst.ratio, worst.groups.ratio)
        return Check("gradients", step.number, verdict, ratio, text, compared=len(found.away), known=found.known)

    factor = common_factor(
        [(step.taken[f"gradient/{step.own(name)}"], step.exact[f"gradient/{name}"]) for name in found.away]
    )
    if factor:
        says += f"; every gradient is {factor:.6g} times the right one"
        says += ": divide it by the scale of the loss" if step.recipe.scales else ""
    elif own := _own_factor(step, place):
        return check(Verdict.DIFFERENT, f"{says}; it is {own:.3g} times the right one")
    return check(Verdict.DRIFT if worst.drifts(limits.DRIFT_RHO) else Verdict.DIFFERENT, says)


def _own_factor(step: Step, name: str) -> float:
    """The factor by which a gradient is the right one, up to the noise; 0.0 where there is none. name: the reference's."""
    found, right = step.taken[f"gradient/{step.own(name)}"], step.exact[f"gradient/{name}"]
    size = float(np.square(right).sum())
    null = rms(right) <= limits.EQUAL_RHO * step.truth.floors[name]
    factor = float((found * right).sum()) / size if size and not null else 0.0
    near = rms(found - factor * right) <= limits.EQUAL_RHO * abs(factor) * step.truth.floors[name]
    return factor if near and abs(factor - 1) > ODD else 0.0


def _why_zero(step: Step) -> str:
    """Why gradients may be zero that should not be."""
    recipe = step.recipe
    return UNDERFLOW if recipe.precision == "float16" and not recipe.scales else "frozen, or without effect on the loss"


def few(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
