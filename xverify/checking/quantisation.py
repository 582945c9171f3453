"""What the quantisation of a file costs, and which of its layers costs most."""

from __future__ import annotations

from dataclasses import replace

from ..errors import SubjectError
from ..messages.graph import RankLayers
from ..results.precision import Precision, Quantisation
from ..results.verdicts import Verdict
from .judge import Judged
from .precision import Converted, Sides

CASE = 0  # the case on which layers are ranked; it is a random one
ENOUGH = 30.0  # seconds of computing costs
COARSE = 4.0  # how many times larger than necessary a scale of weights is a fault: two of the bits are not used
SHOWN = 3  # scales that a reason names


def quantisation_of(
    sides: Sides, precision: Precision, converted: Converted, runtime: Judged | None
) -> Quantisation | None:
    """The errors of a quantised file; None for another one.

    converted: the answer on the conversion. runtime: the answer on the runtime, whose figures are those of the kernels;
        None where the file has no evaluation in float64.
    """
    if not precision.quantised:
        return None
    error = dict((converted.exact or converted.judged).figures)
    kernel = dict(runtime.figures) if runtime else {}
    if sides.onnx_pair is None:
        return Quantisation(error=error, kernel=kernel, stopped="layers are ranked between two ONNX files only")
    graphs, against = sides.onnx_pair
    question = RankLayers(
        file=str(sides.opened.path.resolve()),
        reference=str(against.path.resolve()),
        inputs=str(sides.computed.inputs),
        reference_inputs=str(against.worker.folder / "inputs.npz"),
        case=CASE,
        enough=ENOUGH,
    )
    try:
        reply = graphs.ask(question)
    except SubjectError as failure:
        return Quantisation(error=error, kernel=kernel, stopped=f"the layers could not be ranked: {failure}")
    return Quantisation(reply.layers, reply.known, error, kernel, reply.stopped, reply.seconds)


def with_scales(judged: Judged, quantisation: Quantisation | None) -> Judged:
    """The answer with what the ranking tells: scales that are far too large, which are DIFFERENT, and the layer that costs most."""
    if quantisation is None or not quantisation.layers or judged.error.verdict == Verdict.INVALID:
        return judged
    says = [
        f"{each.layer}: the scale of its weights is {each.coarse:.3g} times larger than they need"
        for each in quantisation.layers
        if each.coarse is not None and each.coarse >= COARSE
    ]
    verdict = max(judged.error.verdict, Verdict.DIFFERENT) if says else judged.error.verdict
    first = quantisation.layers[0]
    if verdict > Verdict.EQUAL and first.share is not None:
        says.append(
            f"{first.layer} costs most: alone it makes {first.share:.0%} of the power of all errors of quantisation"
        )
    if not says:
        return judged
    more = [f"and {len(says) - SHOWN} more"] if len(says) > SHOWN else []
    reason = "; ".join([*says[:SHOWN], *more, *([judged.error.reason] if judged.error.reason else [])])
    return replace(judged, error=replace(judged.error, verdict=verdict, reason=reason))
