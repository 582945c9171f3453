"""What the quantisation of a file costs, and which of its layers costs most."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..errors import SubjectError
from ..messages.graph import RankLayers
from ..results.precision import LayerCost, Precision, Quantisation
from ..results.verdicts import Verdict
from .judge import Judged
from .precision import Converted, Sides

CASE = 0  # the case on which layers are ranked; it is a random one
ENOUGH = 30.0  # seconds of computing costs
# How many times larger than necessary a scale of weights is told: two bits of 8 are not used, or one of at most FEW_BITS.
COARSE, COARSE_BITS, FEW_BITS = 4.0, 2.0, 4
WIDE = 4.0  # how many times wider than its values a range of inputs is told, when others are not as wide
LEAST = 0.1  # decibels; what costs less is told as less than this
SHOWN = 3  # scales that a reason names
UNRANKED = "layers are ranked between ONNX files and quantised OpenVINO files only"


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
    if sides.graph_pair is None:
        return Quantisation(error=error, kernel=kernel, stopped=UNRANKED)
    graphs, against, file, reference = sides.graph_pair
    question = RankLayers(
        file=file,
        reference=reference,
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


def coarse_parts(quantisation: Quantisation | None) -> list[str]:
    """A sentence on each scale of weights and each range of inputs that is far larger than necessary, with what it costs."""
    layers = quantisation.layers if quantisation is not None else ()
    says = [
        f"{each.layer}: the scale of its weights is {each.coarse:.3g} times larger than they need{_costs(each.saved(each.coarse))}"
        for each in layers
        if each.coarse is not None and each.coarse >= (COARSE if each.bits > FEW_BITS else COARSE_BITS)
    ]
    by_input: dict[str, list[LayerCost]] = {}
    for each in layers:
        if each.wide is not None:
            by_input.setdefault(each.wide_input, []).append(each)
    return says + [text for name in by_input for text in _wide(name, by_input)]


def _wide(name: str, by_input: Mapping[str, Sequence[LayerCost]]) -> Iterator[str]:
    """The sentence on the range of a value that layers take, where it is wider than its values, and than other ranges are."""
    takes = by_input[name]
    others = [each.wide or 1.0 for other, layers in by_input.items() if other != name for each in layers[:1]]
    wide = max(each.wide or 1.0 for each in takes)
    saved = [each.saved(wide, inputs=True) for each in takes]
    known = [each for each in saved if each is not None]
    left = sum(1.0 - 10.0 ** (-each / 10) for each in known)
    total = -10.0 * math.log10(1.0 - left) if known and left < 1 else None
    if wide >= WIDE * max(1.0, statistics.median(others or [1.0])):
        yield (
            f"{', '.join(each.layer for each in takes[:SHOWN])}: the range of the input {name} is {wide:.3g} times wider than its "
            f"values in these inputs{_costs(total)}"
        )


def _costs(saved: float | None) -> str:
    if saved is None:
        return ""
    size = f"less than {LEAST}" if saved < LEAST else f"{saved:.1f}"
    return f", which costs {size} dB of SQNR at the outputs"


def with_scales(judged: Judged, quantisation: Quantisation | None, coarse: Sequence[str]) -> Judged:
    """The answer with what the ranking tells: the layer that costs most, and what is coarse, which is a warning.

    coarse: see ``coarse_parts``.
    """
    if quantisation is None or not quantisation.layers or judged.error.verdict == Verdict.INVALID:
        return judged
    verdict = max(judged.error.verdict, Verdict.DRIFT) if coarse else judged.error.verdict
    more = [f"and {len(coarse) - SHOWN} more"] if len(coarse) > SHOWN else []
    says = [*coarse[:SHOWN], *more]
    first = quantisation.layers[0]
    # The result of a layer with the weights of the reference is the same, and its cost is that of rounding.
    if verdict > Verdict.EQUAL and first.share is not None and first.local:
        says.append(
            f"{first.layer} costs most: alone it makes {first.share:.0%} of the power of all errors of quantisation"
        )
    if not says:
        return judged
    reason = "; ".join([*says, *([judged.error.reason] if judged.error.reason else [])])
    return replace(judged, error=replace(judged.error, verdict=verdict, reason=reason))
