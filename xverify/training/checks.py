"""The checks of one whole step: a subject's loss, gradients, update and statistics against the exact ones. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np

from .. import host
from ..results.figures import shown_ratio
from ..results.records import Check
from ..results.verdicts import Verdict
from ..verdict import limits
from ..verdict.limits import OWN_EQUAL
from ..workload.optimizers import VARIANTS, Optimizer
from ..workload.probe import is_iterated
from ..workload.recipe import DIFFERENCES
from . import optimizer_check
from .compared import Coverage, quotient, rounding_alone, share_of
from .gradients import few
from .recipe_checks import trained
from .step import OWN, STATISTICS, Parameter, Statistic, Step

# Times the rounding of float32: enough that some activations cross their kinks, e.g. the zero of a ReLU.
MORE_ROUNDING = 100.0
VAGUE = "rounding alone may change every weight by as much as the step does"


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
    for what, own, exact in found_and_exact:
        if not math.isfinite(own):
            says = f"the loss of {what} is {own}{where()}; the reference's is {exact:.6g}"
            return Check("loss", step.number, Verdict.INVALID, math.inf, says)
        ratio = quotient(abs(own - exact), floor)
        if ratio > OWN_EQUAL:
            verdict = limits.failing(ratio, limits.OWN)
            away = f"{shown_ratio(ratio, 3)} x its noise floor away"
            says = f"the loss of {what} is {own:.8g}; the reference's is {exact:.8g}, {away}"
            mistake = _mistake(step, own)
            says += f": {mistake}" if mistake else ""
            difference = "rounding" if verdict == Verdict.DRIFT and ratio <= rounding else ""
            return Check("loss", step.number, verdict, ratio, says, difference, compared=1, known=1)
    ratio, share = quotient(abs(loss - truth.loss), floor), share_of(floor, abs(truth.loss))
    if not share <= limits.NULL[step.recipe.precision]:
        says = f"rounding alone may change the loss by over {limits.NULL[step.recipe.precision]:.0%}"
        return Check("loss", step.number, Verdict.UNTESTED, None, says, known=1)
    return Check(
        "loss", step.number, Verdict.EQUAL, ratio, compared=1, known=1, detection_limits={"loss": OWN_EQUAL * share}
    )


def _mistake(step: Step, found: float) -> str:
    """What a report says about the known mistake that gives this loss; "" when none does. The nearest one is taken."""

    def distance(value: float) -> float:
        """In shares of the loss. The noise of a loss is about as large as a share of it, whatever its scale."""
        return abs(found - value) / abs(value) if value else math.inf

    near = min(step.truth.alternatives.items(), key=lambda each: distance(each[1]), default=None)
    noise = step.truth.loss_floor / abs(step.truth.loss) if step.truth.loss else 0.0
    return near[0] if near is not None and distance(near[1]) <= max(1e-5, 100 * noise) else ""


def judge_update(
    step: Step, settings: Optimizer, variants: tuple[str, ...], sparse: Sequence[str], coverage: Coverage
) -> Check:
    """Judge the changes of the weights and of the optimizer state, given the framework's own gradients.

    variants: the formula variants of the framework's own optimizer.
    sparse: parameters whose gradients are lists of rows, as those of an embedding may be.
    coverage: gets what is judged.
    """
    names, nothing = trained(step), rounding_alone(step.truth.sizes)
    if not names:
        return Check(
            "update", step.number, Verdict.DIFFERENT, math.inf, "no parameter has a gradient, so nothing is trained"
        )
    updates = _judge_parameters(step, names, settings)
    judged = {
        name: each.share for name, (each, _) in updates.items() if each.share <= limits.NULL[step.recipe.precision]
    }
    for name in (each for each in names if step.stored(each) not in nothing):
        size = step.before[name].size
        coverage.add("update", name, size, size if name in judged else 0)
    count, worst = len(names), max(names, key=lambda name: updates[name][0].rho)
    (rho, what, _), blamed = updates[worst]
    failing = [each for _, each in updates.values() if each is not None]
    if blamed is None:
        detectable = {name: limits.EQUAL_RHO * share for name, share in judged.items()}
        check = Check("update", step.number, Verdict.EQUAL, rho, "", "", len(judged), count, None, detectable)
        return check if judged else replace(check, verdict=Verdict.UNTESTED, ratio=None, says=VAGUE)
    difference = _named(settings, variants, failing, sparse)
    if difference:
        texts = {**VARIANTS, **DIFFERENCES, **OWN}
        says = "; ".join(f"{name}: {texts[name]}" for name in difference.split(", "))
        return Check("update", step.number, Verdict.DRIFT, rho, says, difference, count, count)
    verdict = limits.failing(rho, limits.STEP)
    explained = _explained(settings, blamed, failing)
    says = f"{worst}: the error of {what} is {shown_ratio(rho, 3)} x its noise floor"
    says = f"{says}: {explained}" if explained else says
    return Check("update", step.number, verdict, rho, says, compared=count, known=count)


def _judge_parameters(
    step: Step, names: Sequence[str], settings: Optimizer
) -> dict[str, tuple[optimizer_check.Judged, Parameter | None]]:
    """Judge the update of each parameter by itself. The Parameter comes with those that fail only, because it holds arrays."""

    def judge(name: str) -> tuple[optimizer_check.Judged, Parameter | None]:
        each = Parameter(name, step, settings)
        judged = each.judge(settings, each.parts)
        return judged, each if judged.rho > limits.EQUAL_RHO else None

    with ThreadPoolExecutor(host.cores()) as pool:  # numpy's loops release the interpreter's lock
        return dict(zip(names, pool.map(judge, names)))


def _named(settings: Optimizer, own: tuple[str, ...], failing: Sequence[Parameter], sparse: Sequence[str]) -> str:
    """The names of known differences of the framework that together explain every failing parameter; "" when they do not."""
    formula = tuple(name for name in own if name in VARIANTS)
    counted = tuple(name for name in own if name in ("rates in momentum", "steps of micro-batches"))
    for variants, counts in dict.fromkeys((((), ()), (formula, ()), ((), counted), (formula, counted))):
        variant, names = replace(settings, variants=variants), [*variants, *counts]
        for each in failing:
            if each.judge(variant, each.parts, **_counted(settings, counts, each.steps))[0] <= limits.EQUAL_RHO:
                continue
            if each.parts > 1 and each.judge(variant, 1)[0] <= limits.EQUAL_RHO:
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
        return f"{few([each.name for each in failing if each.unchanged])} did not change: frozen"
    for dtype in ("bfloat16", "float16"):
        if all(each.is_rounded(dtype) for each in failing):
            return f"the weights after a step are rounded to {dtype}: keep them in float32, and round copies"
    first = failing[:3]
    for says, other in optimizer_check.alternatives(settings):
        if all(each.judge(other, each.parts)[0] <= limits.EQUAL_RHO for each in first):
            return says
    if all(each.judge(settings, each.parts, 2.0)[0] <= limits.EQUAL_RHO for each in first):
        return "the gradient of the previous step is still added: it was not zeroed"
    scale = worst.scale(settings)
    if math.isfinite(scale):
        scaled = replace(settings, lr=settings.lr * scale)
        if all(each.judge(scaled, each.parts)[0] <= limits.DRIFT_RHO for each in first):
            return f"behaves as learning rate {scaled.lr:.6g}; it should be {settings.lr:g}"
    return ""


def judge_statistics(step: Step, rounding: float) -> Check:
    """Judge the running means and variances of batch norms. rounding: Local.rounding."""
    statistics = [Statistic(name, step) for name in step.truth.statistics]
    count = len(statistics)
    broken = next((each for each in statistics if not np.isfinite(each.theirs).all()), None)
    if broken is not None:
        return Check("statistics", step.number, Verdict.INVALID, math.inf, f"{broken.name} has NaN or infinity")
    worst = max(statistics, key=lambda each: each.ratio)

    def check(verdict: Verdict, says: str = "", difference: str = "") -> Check:
        return Check(
            "statistics", step.number, verdict, worst.ratio, says, difference, len(judged), count, None, judged
        )

    failing = [each for each in statistics if each.ratio > limits.EQUAL_RHO]
    judged = {each.name: limits.EQUAL_RHO * each.detection_share for each in statistics if not each.vague}
    if not failing and not judged:
        return check(Verdict.UNTESTED, VAGUE.replace("weight", "running statistic"))
    if not failing:
        return check(Verdict.EQUAL)
    plain = f"{worst.name}: its error is {shown_ratio(worst.ratio, 3)} x its noise floor"
    for limit, cancellation in ((limits.DRIFT_RHO, False), (max(limits.DRIFT_RHO, rounding), True)):
        if cancellation and rounding == 1.0:
            break
        if cancellation and all(each.within(each.exact, limit, cancellation) for each in failing):
            return check(Verdict.DRIFT, plain, "rounding")
        for difference, says, variant in STATISTICS:
            if all(each.within(variant(each), limit, cancellation) for each in failing):
                return check(Verdict.DRIFT if difference else Verdict.DIFFERENT, says, difference)
    return check(limits.failing(worst.ratio, limits.STEP), plain)


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
