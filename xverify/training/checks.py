"""The checks of one whole step: the loss, gradients, update and statistics that a subject made, beside the exact ones; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import host
from ..results.records import Check
from ..verdict import limits as rule
from ..verdict.outputs import OWN_DRIFT, OWN_EQUAL
from ..workload import optimizers
from ..workload.optimizers import Optimizer
from . import optimizer_check
from .step import OWN, STATISTICS, Parameter, Size, Statistic, Step, rms

WIDER = 100.0  # times the rounding of float32: what moves activations past their kinks for certain
NULL = 0.01  # a gradient whose floor is more than this part of its size is rounding alone


@dataclass(frozen=True)
class Local:
    """What the checks layer by layer leave for those of whole steps.

    wider: times the rounding of float32 that may explain gradients, where every layer by itself is right; else None.
    rounding: times the rounding of float32 by which a layer is off that is right, but less accurate by its formula.
    """

    wider: float | None = WIDER
    rounding: float = 1.0

    @classmethod
    def of(cls, checks: Sequence[Check]) -> Local:
        """What these checks leave."""
        clean = all(check.verdict == "EQUAL" or check.difference for check in checks)
        return cls(
            wider=max(WIDER, *(check.ratio or 0.0 for check in checks)) if clean else None,
            rounding=max((check.ratio or 1.0 for check in checks if "rounding" in check.difference), default=1.0),
        )


def judge_loss(step: Step, reply: Mapping[str, float], rows: int, rounding: float) -> Check:
    """The loss of one batch, which is as far off as the layers it comes from: Local.rounding.

    reply: the ``loss`` that goes with the gradients, and the timed step's own, ``step_loss``. rows: that it is the mean of.
    """
    right, floor = step.truth["loss"], step.truth["loss_floor"]
    for what, found in (("gradients", reply["loss"]), ("the timed step", reply["step_loss"])):
        if not math.isfinite(found):
            says = f"the loss is {found}; the reference's is {right:.6g}"
            return Check("loss", step.number, "INVALID", math.inf, says)
        ratio = abs(found - right) / floor if floor else math.inf * (found != right)
        if ratio > OWN_EQUAL:
            verdict = "DRIFT" if ratio <= OWN_DRIFT else "DIFFERENT"
            says = f"{found:.8g} with {what}; the reference has {right:.8g}, {ratio:.3g} x its floor away"
            for name, factor in (("the sum over all rows", rows), ("divided once more by the rows", 1 / rows)):
                if rows > 1 and abs(found / (right * factor) - 1) < 1e-3:
                    says += f": it is {name}, not their mean"
            difference = "rounding" if verdict == "DRIFT" and ratio <= rounding else ""
            return Check("loss", step.number, verdict, ratio, says, difference, compared=1, known=1)
    ratio = abs(reply["loss"] - right) / floor if floor else 0.0
    return Check("loss", step.number, "EQUAL", ratio, compared=1, known=1)


@dataclass
class Gradients:
    """A subject's gradients sorted by what can be said of them, by the subject's names; ``away`` by the reference's.

    away: rms of the distance from the exact one. missing: there is none. still: zero where the exact one is not. null: rounding
    alone, which tells nothing. broken: what is wrong with the first that is no array of the right shape.
    """

    away: dict[str, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    still: list[str] = field(default_factory=list)
    null: list[str] = field(default_factory=list)
    known: int = 0
    broken: str = ""

    @classmethod
    def of(cls, step: Step, size: Size) -> Gradients:
        """Those of this step. size: grows by every one that is compared."""
        found, fused_parameters = cls(), step.fused_parameters
        for name, floor in step.truth["floors"].items():
            own = next((merged for merged, parts in fused_parameters.items() if name in parts), name)
            if fused_parameters.get(own, (name,))[0] != name:
                continue  # the second of two that are stored as one
            found.known += 1
            if f"gradient/{own}" not in step.taken:
                found.missing.append(own)
                continue
            gradient, right = step.taken[f"gradient/{own}"], step.exact[f"gradient/{name}"]
            if gradient.shape != right.shape:
                found.broken = f"{own}: its gradient has shape {gradient.shape}, not {right.shape}"
                break
            if not np.isfinite(gradient).all():
                found.broken = f"{own}: its gradient has NaN or infinity"
                break
            whole = step.truth["sizes"][name]
            tells = bool(whole) and floor <= NULL * whole
            if not tells:
                found.null.append(own)
            elif not gradient.any():
                found.still.append(own)
            else:
                residual = gradient - right
                size.add(residual, right)
                found.away[name] = rms(residual)
        return found


def judge_gradients(
    step: Step,
    wider: float | None,
    widened: Callable[[float], Mapping[str, float]],
    untested: list[str],
    size: Size,
) -> Check:
    """The gradient of every parameter, by the whole model's noise.

    wider: Local.wider. widened: from times the rounding of float32 to each gradient's floor then; asked only where needed.
    untested: takes the parameters of which nothing can be said. size: see Gradients.of.
    """
    found = Gradients.of(step, size)
    away, floors = found.away, step.truth["floors"]
    untested += found.null
    counts: dict[str, Any] = {"compared": len(away), "known": found.known}

    def check(verdict: str, ratio: float | None, says: str = "") -> Check:
        return Check("gradients", step.number, verdict, ratio, says, **counts)

    if found.broken:
        return Check("gradients", step.number, "INVALID", math.inf, found.broken, known=found.known)
    if found.missing:
        have = "has" if len(found.missing) == 1 else "have"
        return check(
            "DIFFERENT", math.inf, f"{_few(found.missing)} {have} no gradient: frozen, or not a parameter there"
        )
    if found.still:
        return check(
            "DIFFERENT", math.inf, f"{_few(found.still)}: the gradient is zero: frozen, or cut off from the loss"
        )
    if not away:
        return check("UNTESTED", None, "every gradient is rounding alone")
    worst, place = max((distance / floors[name], name) for name, distance in away.items())
    if worst <= rule.EQUAL_RHO or (wider and worst <= rule.COHERENT_RHO):
        return check("EQUAL", worst)
    says = f"{place}: {worst:.3g} x the noise of all layers"
    if wider:
        wide = widened(wider)
        beyond = [name for name, distance in away.items() if distance > rule.COHERENT_RHO * floors[name]]
        worst, place = max((away[name] / max(wide[name], floors[name]), name) for name in beyond)
        if worst <= rule.EQUAL_RHO:
            loose = [name for name in beyond if wide[name] > NULL * step.truth["sizes"][name]]
            untested += loose
            counts["compared"] -= len(loose)
            says += f"; within that of {wider:.3g} times the rounding, which moves activations past their kinks"
            return check("EQUAL" if counts["compared"] else "UNTESTED", worst, says)
        says = f"{place}: {worst:.3g} x the noise of layers that round {wider:.3g} times as far as float32"
    return check("DRIFT" if worst <= rule.DRIFT_RHO else "DIFFERENT", worst, says)


def judge_update(step: Step, settings: Optimizer, variants: tuple[str, ...], sparse: Sequence[str]) -> Check:
    """How the weights and the optimizer's optimizer_state moved, from the framework's own gradients.

    variants: in which its own optimizer differs by its formula. sparse: parameters whose gradients come as rows.
    """
    names = [key.removeprefix("gradient/") for key in step.taken if key.startswith("gradient/")]
    if not names:
        return Check("update", step.number, "DIFFERENT", math.inf, "no parameter learns")

    def judge(name: str) -> tuple[float, str, Parameter]:
        each = Parameter(name, step, settings)
        return *each.judge(settings, each.parts), each

    rho, says, worst, failing = 0.0, "", None, []
    with ThreadPoolExecutor(host.cores()) as pool:  # numpy's loops let go of the interpreter
        for ratio, what, each in pool.map(judge, names):
            if ratio > optimizer_check.EQUAL_RHO:
                failing.append(each)
            if ratio > rho:
                rho, worst, says = ratio, each, f"{each.name}: {what} is {ratio:.3g} x its floor"
    counts: dict[str, Any] = {"compared": len(names), "known": len(names)}
    if worst is None or not failing:
        return Check("update", step.number, "EQUAL", rho, **counts)
    difference = _named(settings, variants, failing, sparse)
    if difference:
        text = "; ".join(f"{name}: {optimizers.VARIANTS.get(name) or OWN[name]}" for name in difference.split(", "))
        return Check("update", step.number, "DRIFT", rho, text, difference, **counts)
    verdict = "DRIFT" if rho <= optimizer_check.DRIFT_RHO else "DIFFERENT"
    explained = _explained(settings, worst, failing)
    return Check("update", step.number, verdict, rho, f"{says}: {explained}" if explained else says, **counts)


def _named(settings: Optimizer, own: tuple[str, ...], failing: Sequence[Parameter], sparse: Sequence[str]) -> str:
    """The framework's own differences that explain every parameter that fails, '' when they do not."""
    for variants in dict.fromkeys(((), own)):
        form, names = replace(settings, variants=variants), list(variants)
        for each in failing:
            if each.judge(form, each.parts)[0] <= optimizer_check.EQUAL_RHO:
                continue
            if each.parts > 1 and each.judge(form, 1)[0] <= optimizer_check.EQUAL_RHO:
                names.append("one bias")
            elif each.name in sparse and "square" in settings.state_names:
                names.append("repeated rows")
            else:
                break
        else:
            return ", ".join(dict.fromkeys(names))
    return ""


def _explained(settings: Optimizer, worst: Parameter, failing: Sequence[Parameter]) -> str:
    """What a wrong step does instead, of the catalogue."""
    if not np.any(worst.after - worst.before):
        still = [each.name for each in failing if not np.any(each.after - each.before)]
        return f"{_few(still)} did not move: frozen"
    for _, says, other in optimizer_check.alternatives(settings):
        if all(each.judge(other, each.parts)[0] <= optimizer_check.EQUAL_RHO for each in failing[:3]):
            return says
    if all(each.judge(settings, each.parts, 2.0)[0] <= optimizer_check.EQUAL_RHO for each in failing[:3]):
        return "the gradient of the step before is still in it: it was not zeroed"
    scale = worst.scale(settings)
    if math.isfinite(scale):
        scaled = replace(settings, lr=settings.lr * scale)
        if all(each.judge(scaled, each.parts)[0] <= optimizer_check.DRIFT_RHO for each in failing[:3]):
            return f"behaves as learning rate {scaled.lr:.6g}; it should be {settings.lr:g}"
    return ""


def judge_statistics(step: Step, rounding: float) -> Check:
    """Running means and variances of batch norms, which are as far off as what they are computed from: Local.rounding."""
    found = [Statistic(name, step) for name in step.truth["statistics"]]
    counts: dict[str, Any] = {"compared": len(found), "known": len(found)}
    broken = next((each for each in found if not np.isfinite(each.theirs).all()), None)
    if broken is not None:
        return Check("statistics", step.number, "INVALID", math.inf, f"{broken.name} has NaN or infinity")
    worst = max(found, key=lambda each: each.ratio)
    failing = [each for each in found if each.ratio > rule.EQUAL_RHO]
    if not failing:
        return Check("statistics", step.number, "EQUAL", worst.ratio, **counts)
    plain = f"{worst.name}: {worst.ratio:.3g} x its floor"
    for limit, lossy in ((rule.DRIFT_RHO, False), (max(rule.DRIFT_RHO, rounding), True)):
        if lossy and rounding == 1.0:
            break
        if lossy and all(each.within(each.right, limit, lossy) for each in failing):
            return Check("statistics", step.number, "DRIFT", worst.ratio, plain, "rounding", **counts)
        for difference, says, form in STATISTICS:
            if all(each.within(form(each), limit, lossy) for each in failing):
                verdict = "DRIFT" if difference else "DIFFERENT"
                return Check("statistics", step.number, verdict, worst.ratio, says, difference, **counts)
    verdict = "DRIFT" if worst.ratio <= rule.DRIFT_RHO else "DIFFERENT"
    return Check("statistics", step.number, verdict, worst.ratio, plain, **counts)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
