"""The checks of one whole step: a subject's loss, gradients, update and statistics against the exact ones. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypedDict

import numpy as np

from .. import host
from ..results.records import Check
from ..results.verdicts import Verdict
from ..verdict import limits
from ..verdict.judgement import OWN_DRIFT, OWN_EQUAL
from ..workload.optimizers import VARIANTS, Optimizer
from ..workload.probe import is_iterated
from ..workload.recipe import DIFFERENCES
from . import optimizer_check
from .precision_checks import UNDERFLOW, common_factor
from .recipe_checks import trained
from .step import OWN, STATISTICS, Distance, Parameter, Statistic, Step, rms

MORE_ROUNDING = (
    100.0  # times the rounding of float32: enough that some activations cross their kinks, e.g. the zero of a ReLU
)
# A gradient that is the right one times 1 + this, or more, is wrong, however large the noise of all layers is.
ODD = 0.1


@dataclass(frozen=True)
class Local:
    """What follows from the layer checks for the checks of whole steps.

    more_rounding: the gradients may be explained by this multiple of float32's rounding, because every layer is right; None
        when some layer is wrong.
    rounding: the largest error, as a multiple of float32's rounding, of a layer that is right but has a less accurate formula.
    """

    more_rounding: float | None = MORE_ROUNDING
    rounding: float = 1.0

    @classmethod
    def of(cls, checks: Sequence[Check], mixed: bool = False) -> Local:
        """Derive the limits from the layer checks. mixed: in a lower precision, noise contains what more rounding would explain."""
        clean = not mixed and all(check.verdict == Verdict.EQUAL or check.difference for check in checks)
        return cls(
            more_rounding=max([MORE_ROUNDING, *(check.ratio or 0.0 for check in checks)]) if clean else None,
            rounding=max((check.ratio or 1.0 for check in checks if "rounding" in check.difference), default=1.0),
        )


def judge_loss(
    step: Step, loss: float, step_loss: float, rounding: float, where: Callable[[], str] = lambda: ""
) -> Check:
    """Judge the loss of one batch.

    loss: of the pass that gave the gradients. step_loss: of the timed step.
    rounding: Local.rounding.
    where: says where a loss that is not finite begins, as the end of a sentence.
    """
    truth, floor = step.truth, step.truth.loss_floor
    of_step = truth.loss if truth.accumulated_loss is None else truth.accumulated_loss
    found_and_exact = (
        ("the pass that gives the gradients", loss, truth.loss),
        ("the timed step", step_loss, of_step),
    )
    for what, found, exact in found_and_exact:
        if not math.isfinite(found):
            says = f"the loss of {what} is {found}{where()}; the reference's is {exact:.6g}"
            return Check("loss", step.number, Verdict.INVALID, math.inf, says)
        ratio = abs(found - exact) / floor if floor else math.inf * (found != exact)
        if ratio > OWN_EQUAL:
            verdict = Verdict.DRIFT if ratio <= OWN_DRIFT else Verdict.DIFFERENT
            says = (
                f"the loss of {what} is {found:.8g}; the reference's is {exact:.8g}, {ratio:.3g} x its noise floor away"
            )
            mistake = _mistake(step, found)
            says += f": {mistake}" if mistake else ""
            difference = "rounding" if verdict == Verdict.DRIFT and ratio <= rounding else ""
            return Check("loss", step.number, verdict, ratio, says, difference, compared=1, known=1)
    ratio = abs(loss - step.truth.loss) / floor if floor else 0.0
    return Check("loss", step.number, Verdict.EQUAL, ratio, compared=1, known=1)


def _mistake(step: Step, found: float) -> str:
    """What a report says about the known mistake that gives this loss; "" when none does. The nearest one is taken."""

    def distance(value: float) -> float:
        """In shares of the loss. The noise of a loss is about as large as a share of it, whatever its scale."""
        return abs(found - value) / abs(value) if value else math.inf

    near = min(step.truth.alternatives.items(), key=lambda each: distance(each[1]), default=None)
    noise = step.truth.loss_floor / abs(step.truth.loss) if step.truth.loss else 0.0
    return near[0] if near is not None and distance(near[1]) <= max(1e-5, 100 * noise) else ""


@dataclass
class Gradients:
    """The gradients of a subject, sorted by what was found. Names are the subject's; those in ``away`` are the reference's.

    away: gradients that can be judged -> rms of the distance from the exact gradient.
    missing: parameters without a gradient. zero: gradients that are zero although the exact one is not.
    null: gradients that consist of rounding alone, so that no fault could show in them.
    known: number of gradients of the reference.
    broken: what is wrong with the first gradient of another shape, or with NaN or infinity; "" when there is none.
    """

    away: dict[str, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    zero: list[str] = field(default_factory=list)
    null: list[str] = field(default_factory=list)
    known: int = 0
    broken: str = ""

    @classmethod
    def of(cls, step: Step, distance: Distance) -> Gradients:
        """Sort the gradients of this step. distance: the distance of every judged gradient is added to it."""
        found = cls()
        for name in step.truth.floors:
            if name in step.frozen:
                continue
            own = step.own(name)
            if step.stored(own) != name:
                continue  # the second of several parameters that the framework stores as one
            found.known += 1
            found._add(step, name, own, distance)
            if found.broken:
                break
        return found

    def _add(self, step: Step, name: str, own: str, distance: Distance) -> None:
        """Sort one gradient. name: its name in the reference. own: its name in the subject."""
        if f"gradient/{own}" not in step.taken:
            self.missing.append(own)
            return
        gradient, exact = step.taken[f"gradient/{own}"], step.exact[f"gradient/{name}"]
        if gradient.shape != exact.shape:
            self.broken = f"{own}: its gradient has shape {gradient.shape}, not {exact.shape}"
            return
        if not np.isfinite(gradient).all():
            self.broken = f"{own}: its gradient has NaN or infinity"
            return
        size = step.truth.sizes[name]
        if not size or step.truth.floors[name] > limits.NULL[step.recipe.precision] * size:
            self.null.append(own)
        elif not gradient.any():
            self.zero.append(own)
        else:
            residual = gradient - exact
            distance.add(residual, exact)
            self.away[name] = rms(residual)


def judge_gradients(
    step: Step,
    more_rounding: float | None,
    floors_with: Callable[[float], Mapping[str, float]],
    untested: list[str],
    distance: Distance,
) -> Check:
    """Judge the gradient of every parameter against the noise of the whole model.

    more_rounding: Local.more_rounding.
    floors_with: computes the noise floor of each gradient for a multiple of float32's rounding; called only when needed.
    untested: a list, to which the names of parameters that cannot be judged are added.
    distance: see Gradients.of.
    """
    found = Gradients.of(step, distance)
    away, floors = found.away, step.truth.floors
    untested += found.null

    def check(verdict: Verdict, ratio: float | None, says: str = "", compared: int = len(away)) -> Check:
        return Check("gradients", step.number, verdict, ratio, says, compared=compared, known=found.known)

    if found.broken:
        return Check("gradients", step.number, Verdict.INVALID, math.inf, found.broken, known=found.known)
    if found.missing:
        have = "has" if len(found.missing) == 1 else "have"
        says = f"{_few(found.missing)} {have} no gradient: frozen, or not a parameter in this framework"
        return check(Verdict.DIFFERENT, math.inf, says)
    if found.zero:
        says = f"{_few(found.zero)}: the gradient is zero: {_why_zero(step)}"
        return check(Verdict.DIFFERENT, math.inf, says)
    if not away:
        return check(Verdict.UNTESTED, None, "every gradient consists of rounding alone")
    worst, place = max((distance_ / floors[name], name) for name, distance_ in away.items())
    if worst <= limits.EQUAL_RHO or (more_rounding and worst <= limits.COHERENT_RHO):
        return check(Verdict.EQUAL, worst)
    says = f"{place}: its error is {worst:.3g} x the noise of all layers"
    if more_rounding:
        larger = floors_with(more_rounding)
        beyond = [name for name, distance_ in away.items() if distance_ > limits.COHERENT_RHO * floors[name]]
        worst, place = max((away[name] / max(larger[name], floors[name]), name) for name in beyond)
        if worst <= limits.EQUAL_RHO:
            loose = [
                name for name in beyond if larger[name] > limits.NULL[step.recipe.precision] * step.truth.sizes[name]
            ]
            untested += loose
            compared = len(away) - len(loose)
            says += f"; {more_rounding:.3g} times the rounding explains it, because activations cross their kinks"
            return check(Verdict.EQUAL if compared else Verdict.UNTESTED, worst, says, compared)
        says = f"{place}: its error is {worst:.3g} x the noise of layers that round {more_rounding:.3g} times as much as float32"
    factor = common_factor(
        [(step.taken[f"gradient/{step.own(name)}"], step.exact[f"gradient/{name}"]) for name in away]
    )
    if factor:
        says += f"; every gradient is {factor:.6g} times the right one"
        says += ": divide it by the scale of the loss" if step.recipe.scales else ""
    elif own := _own_factor(step, place):
        return check(Verdict.DIFFERENT, worst, f"{says}; it is {own:.3g} times the right one")
    return check(Verdict.DRIFT if worst <= limits.DRIFT_RHO else Verdict.DIFFERENT, worst, says)


def _own_factor(step: Step, name: str) -> float:
    """The factor by which a gradient is the right one, up to the noise; 0.0 where there is none. name: the reference's."""
    found, right = step.taken[f"gradient/{step.own(name)}"], step.exact[f"gradient/{name}"]
    factor = float((found * right).sum() / np.square(right).sum())
    near = rms(found - factor * right) <= limits.EQUAL_RHO * abs(factor) * step.truth.floors[name]
    return factor if near and abs(factor - 1) > ODD else 0.0


def _why_zero(step: Step) -> str:
    """Why gradients may be zero that should not be."""
    recipe = step.recipe
    return UNDERFLOW if recipe.precision == "float16" and not recipe.scales else "frozen, or without effect on the loss"


def judge_update(step: Step, settings: Optimizer, variants: tuple[str, ...], sparse: Sequence[str]) -> Check:
    """Judge the changes of the weights and of the optimizer state, given the framework's own gradients.

    variants: the formula variants of the framework's own optimizer.
    sparse: parameters whose gradients are lists of rows, as those of an embedding may be.
    """
    names = trained(step)
    if not names:
        return Check(
            "update", step.number, Verdict.DIFFERENT, math.inf, "no parameter has a gradient, so nothing is trained"
        )

    def judge(name: str) -> tuple[float, str, Parameter]:
        each = Parameter(name, step, settings)
        return *each.judge(settings, each.parts), each

    rho, says, worst, failing = 0.0, "", None, []
    with ThreadPoolExecutor(host.cores()) as pool:  # numpy's loops release the interpreter's lock
        for ratio, what, each in pool.map(judge, names):
            if ratio > optimizer_check.EQUAL_RHO:
                failing.append(each)
            if ratio > rho:
                rho, worst, says = ratio, each, f"{each.name}: the error of {what} is {ratio:.3g} x its noise floor"
    count = len(names)
    if worst is None or not failing:
        return Check("update", step.number, Verdict.EQUAL, rho, compared=count, known=count)
    difference = _named(settings, variants, failing, sparse)
    if difference:
        texts = {**VARIANTS, **DIFFERENCES, **OWN}
        says = "; ".join(f"{name}: {texts[name]}" for name in difference.split(", "))
        return Check("update", step.number, Verdict.DRIFT, rho, says, difference, count, count)
    verdict = Verdict.DRIFT if rho <= optimizer_check.DRIFT_RHO else Verdict.DIFFERENT
    explained = _explained(settings, worst, failing)
    says = f"{says}: {explained}" if explained else says
    return Check("update", step.number, verdict, rho, says, compared=count, known=count)


def _named(settings: Optimizer, own: tuple[str, ...], failing: Sequence[Parameter], sparse: Sequence[str]) -> str:
    """The names of known differences of the framework that together explain every failing parameter; "" when they do not."""
    formula = tuple(name for name in own if name in VARIANTS)
    counted = tuple(name for name in own if name in ("rates in momentum", "steps of micro-batches"))
    for variants, counts in dict.fromkeys((((), ()), (formula, ()), ((), counted), (formula, counted))):
        variant, names = replace(settings, variants=variants), [*variants, *counts]
        for each in failing:
            if (
                each.judge(variant, each.parts, **_counted(settings, counts, each.steps))[0]
                <= optimizer_check.EQUAL_RHO
            ):
                continue
            if each.parts > 1 and each.judge(variant, 1)[0] <= optimizer_check.EQUAL_RHO:
                names.append("one bias")
            elif each.name in sparse and "square" in settings.state_names:
                names.append("repeated rows")
            else:
                break
        else:
            return ", ".join(dict.fromkeys(names))
    return ""


class _Counted(TypedDict, total=False):
    """Arguments of Parameter.judge."""

    momentum: float
    parts: int


def _counted(settings: Optimizer, differences: Collection[str], steps: int) -> _Counted:
    """How a framework that counts or keeps rates in another way makes its step. differences: keys of recipe.DIFFERENCES."""
    recipe, found = settings.recipe, _Counted()
    if "rates in momentum" in differences:
        parts = recipe.accumulate
        last, present = (recipe.factor(max(0, number) * parts + parts - 1) for number in (steps - 1, steps))
        found["momentum"] = last / present if present else 1.0
    if "steps of micro-batches" in differences:
        found["parts"] = recipe.accumulate
    return found


def _explained(settings: Optimizer, worst: Parameter, failing: Sequence[Parameter]) -> str:
    """What a wrong step computes instead, from the list of known mistakes; "" when none of them explains it."""
    if worst.unchanged:
        return f"{_few([each.name for each in failing if each.unchanged])} did not change: frozen"
    for dtype in ("bfloat16", "float16"):
        if all(each.is_rounded(dtype) for each in failing):
            return f"the weights after a step are rounded to {dtype}: keep them in float32, and round copies"
    few = failing[:3]
    for says, other in optimizer_check.alternatives(settings):
        if all(each.judge(other, each.parts)[0] <= optimizer_check.EQUAL_RHO for each in few):
            return says
    if all(each.judge(settings, each.parts, 2.0)[0] <= optimizer_check.EQUAL_RHO for each in few):
        return "the gradient of the previous step is still added: it was not zeroed"
    scale = worst.scale(settings)
    if math.isfinite(scale):
        scaled = replace(settings, lr=settings.lr * scale)
        if all(each.judge(scaled, each.parts)[0] <= optimizer_check.DRIFT_RHO for each in few):
            return f"behaves as learning rate {scaled.lr:.6g}; it should be {settings.lr:g}"
    return ""


def judge_statistics(step: Step, rounding: float) -> Check:
    """Judge the running means and variances of batch norms. rounding: Local.rounding."""
    found = [Statistic(name, step) for name in step.truth.statistics]
    count = len(found)
    broken = next((each for each in found if not np.isfinite(each.theirs).all()), None)
    if broken is not None:
        return Check("statistics", step.number, Verdict.INVALID, math.inf, f"{broken.name} has NaN or infinity")
    worst = max(found, key=lambda each: each.ratio)

    def check(verdict: Verdict, says: str = "", difference: str = "") -> Check:
        return Check("statistics", step.number, verdict, worst.ratio, says, difference, count, count)

    failing = [each for each in found if each.ratio > limits.EQUAL_RHO]
    if not failing:
        return check(Verdict.EQUAL)
    plain = f"{worst.name}: its error is {worst.ratio:.3g} x its noise floor"
    for limit, cancellation in ((limits.DRIFT_RHO, False), (max(limits.DRIFT_RHO, rounding), True)):
        if cancellation and rounding == 1.0:
            break
        if cancellation and all(each.within(each.exact, limit, cancellation) for each in failing):
            return check(Verdict.DRIFT, plain, "rounding")
        for difference, says, variant in STATISTICS:
            if all(each.within(variant(each), limit, cancellation) for each in failing):
                return check(Verdict.DRIFT if difference else Verdict.DIFFERENT, says, difference)
    return check(Verdict.DRIFT if worst.ratio <= limits.DRIFT_RHO else Verdict.DIFFERENT, plain)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# -- spectral norms -----------------------------------------------------------------------------------------------------


def iterated_vectors(weights: Collection[str]) -> Iterator[Check]:
    """What is not compared of spectral norms: their vectors after a step. weights: the names of all weights."""
    names = [name for name in weights if is_iterated(name, weights)]
    if names:
        says = (
            f"what a step makes of the vectors of spectral norms ({names[0]}, {len(names)} in all) is not compared; gradients and "
            "updates are, with the vectors of the reference's state after one iteration"
        )
        yield Check("statistics", 0, Verdict.UNTESTED, says=says)
