"""The verdict that follows from the checks of a subject's training. Pure functions."""

from __future__ import annotations

from ..results.records import Check, Error, Layers, Training
from ..results.verdicts import EndVerdict, Verdict
from ..verdict import limits
from ..verdict.limits import LEAST_JUDGED
from .compared import Coverage
from .step import Distance

# Checks without which a row is UNTESTED; what "gradients" lacks, "backward" may have judged.
ESSENTIAL = ("loss", "update", "optimizer")
# The verdict on a row whose end losses differ. The others change nothing.
OF_END_LOSSES = {
    EndVerdict.HIGHER: Verdict.DRIFT,
    EndVerdict.LOWER: Verdict.DRIFT,
    EndVerdict.DIVERGED: Verdict.INVALID,
}


def training_error(training: Training, distance: Distance, coverage: Coverage) -> Error:
    """Combine all checks, the loss curve and the end losses to one verdict.

    distance: of all gradients from the exact ones. coverage: how much of the parameters was judged.
    """
    verdict = Verdict.worst(check.verdict for check in training.checks if check.verdict != Verdict.UNTESTED)
    drifting = [curve for curve in training.curves if curve.verdict != Verdict.EQUAL]
    ends = [each for each in training.ends if each.verdict in OF_END_LOSSES]
    verdict = Verdict.worst(
        [verdict, *(each.verdict for each in drifting), *(OF_END_LOSSES[each.verdict] for each in ends)]
    )
    reason = None
    if training.told:
        reason = "; ".join(f"{each.name}, step {each.step}: {each.says}" for each in training.told)
    elif training.differences:
        reason = "; ".join(dict.fromkeys(check.says for check in training.checks if check.difference))
    elif any(curve.says for curve in training.curves):
        reason = next(f"{curve.title}: {curve.says}" for curve in training.curves if curve.says)
    elif ends:
        reason = ends[0].says
    lacking = _lacking(training, coverage)
    if lacking and not verdict.fails:
        verdict, reason = Verdict.UNTESTED, lacking
    compared = [check for check in training.checks if check.name == "gradients" and check.step == 0]
    # That of the state is a share of what a step changes in it, which a slow average makes large.
    judged = [check for check in training.checks if check.name != "state"]
    detectable = [check.detection_limit for check in judged if check.detection_limit is not None]
    return Error(
        verdict=verdict,
        reason=reason,
        detection_limit=max(detectable, default=None),
        judged=_judged(training, coverage),
        mean_abs=distance.mean_abs,
        max_abs=distance.largest,
        rel_rms=distance.relative,
        compared=sum(check.compared for check in compared),
        expected=sum(check.known for check in compared),
    )


def _judged(training: Training, coverage: Coverage) -> float | None:
    """The share of the trained values that was judged; None where the checks were not made."""
    shares = [coverage.share(check) for check in coverage.known if not (check == "gradients" and _by_layer(training))]
    return min(shares) if shares else None


def _by_layer(training: Training) -> bool:
    """Whether the gradients of every layer were judged by themselves."""
    found = [check for check in training.checks if check.name == "backward"]
    return any(check.verdict <= Verdict.DRIFT and check.compared == check.known for check in found)


def _lacking(training: Training, coverage: Coverage) -> str:
    """Why too little was judged for a verdict; "" when it was enough."""
    for name in ESSENTIAL:
        found = [check for check in training.checks if check.name == name]
        if found and all(check.verdict == Verdict.UNTESTED for check in found):
            return f"{name}: {found[0].says}"
    judged = _judged(training, coverage)
    if judged is None or judged >= LEAST_JUDGED:
        return ""
    return f"{coverage.says}: rounding alone may change the others by over {limits.NULL[training.precision]:.0%}"


def layer_check(name: str, layers: Layers) -> Check:
    """Combine the verdicts on all layers of one pass, forward or backward, to a check of this name."""
    first, compared, known = layers.first, layers.compared, layers.known
    if not compared:
        says = layers.stopped or "no layer could be captured"
        return Check(name, 0, Verdict.UNTESTED, says=says, compared=compared, known=known)
    ratio = max((max(layer.ratio, layer.input_ratio) for layer in layers.layers), default=0.0)
    if first is None:
        return Check(name, 0, Verdict.EQUAL, ratio, compared=compared, known=known)
    verdict = Verdict.DRIFT if layers.rounding else layers.verdict
    difference = "rounding" if layers.rounding else ""
    return Check(name, 0, verdict, ratio, layers.describe(first), difference, compared, known)
