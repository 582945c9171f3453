"""The precision of files, and the verdict on a conversion at that precision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import Refused, TimedOut
from ..messages.files import ReadPrecision
from ..messages.graph import CompareRoundedWeights, DescribeGraph, EvaluateRounding
from ..processes.worker import Worker
from ..results.layers import LayerError, Layers
from ..results.precision import Precision
from ..results.verdicts import Verdict
from ..verdict.findings import APPROXIMATION
from ..verdict.limits import UNIT, UNITS
from ..verdict.ratios import Floor
from ..weights import npz
from ..weights.canonical import Array
from ..workload.keys import case_key
from .cases import EXTREME
from .computing import INPUTS, Cases, Computed
from .judge import Judged, conversion, exact_conversion, renamed, without_model
from .meaning import Floors, Meaning
from .subject import Opened

ENOUGH = 4.0  # seconds of evaluating within which further cases must end
# Share of the power of a quantised value outside of its range above which a reason tells it, and zeros and other drawn values of
# unusual sizes are taken for inputs that do not fit the calibration.
CUT = 1e-4
SHOWN = 3  # weights that a reason names
GIVEN = "random"  # cases of this kind, and those of the user, are always compared


@dataclass(frozen=True)
class Sides:
    """A file and its reference, with all that was computed from them.

    own: what the file says; None where its format has no evaluation in float64. rounded: the same with the rounding of a runtime
        that was found right. against: the reference, when it is a file.
    cases: the input cases under the reference's names. graphs: the worker that evaluates ONNX graphs.
    """

    opened: Opened
    computed: Computed
    own: Meaning | None
    rounded: Meaning | None
    reference: Meaning
    against: Opened | None
    cases: Cases
    graphs: Worker | None
    seed: int

    @property
    def graph_pair(self) -> tuple[Worker, Opened, str, str] | None:
        """The worker that compares graphs node by node, the reference, and the ONNX files of the file's and the reference's graph.

        None unless both have such a graph, with the channels of images first.
        """
        graphs, against = self.graphs, self.against
        if graphs is None or against is None or not compares_steps(self.opened, against):
            return None
        return graphs, against, str(self.opened.graph), str(against.graph)


def compares_steps(file: Opened, reference: Opened) -> bool:
    """Whether the graphs of two files are compared node by node, and quantised weights step by step."""
    return not any(each.graph is None or each.form.channels_last for each in (file, reference))


@dataclass(frozen=True)
class Converted:
    """The answer on a conversion. exact: the answer on what the file says in float64; None where that is unknown.

    notes: what was left out, and why.
    """

    judged: Judged
    exact: Judged | None = None
    notes: tuple[str, ...] = ()


def read_precision(opened: Opened, graphs: Worker | None) -> Precision:
    """The precision of a file, as far as its format tells."""
    try:
        if opened.is_onnx and graphs is not None:
            return graphs.ask(DescribeGraph(str(opened.path.resolve()))).precision
        return opened.worker.ask(ReadPrecision())
    except (Refused, TimedOut):
        return Precision()


def at_precision(own: Meaning | None, precision: Precision, computed: Computed) -> Meaning | None:
    """What a file says, with the noise of its own precision where only its inputs were perturbed, by the roundoff of their type."""
    unit = _unit(precision)
    if own is None or own.modelled or own.floors is None or unit is None:
        return own
    return replace(own, floors=_scaled(own.floors, unit, npz.OnDisk(computed.inputs), own.outputs))


def _scaled(floors: Floors, unit: float, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> dict[str, Floor]:
    """Floors for another unit roundoff than that of the dtype of the inputs, by which they were measured.

    The rounding of the outputs themselves is added.
    """
    measured = max((UNITS.get(inputs[key].dtype.name, UNIT) for key in inputs if key.startswith("0/")), default=UNIT)
    factor = max(1.0, unit / measured)
    return {key: np.hypot(floors[key] * factor, unit / math.sqrt(3) * np.abs(outputs[key])) for key in floors}


def convert_at(sides: Sides, precision: Precision, coarse: bool = False) -> Converted:
    """Does the file say what the reference says, up to what its precision may come to?

    The outputs of the runtime are compared, and what the file says in float64 where that is known. The worse answer counts.
    Where nobody knows what rounding may come to at this precision, rounding accuses nobody.

    coarse: see ``EvaluateRounding``.
    """
    noise, why = None, f"there is no model of it for the format of this file ({sides.opened.form.title})"
    try:
        noise = _noise(sides, precision, coarse) if precision.is_narrow else None
    except (Refused, TimedOut) as error:
        why = f"it could not be computed: {error}"
    if noise is None:
        every, notes = _of_usual_size(sides, precision)
        judged = conversion(sides.computed, sides.reference, sides.rounded, every)
        exact = _exact(sides, renamed(sides.own.floors, sides.computed), every) if sides.own else None
        judged = _worse(judged, exact, "float32")
        judged = without_model(judged, precision.name, why) if precision.is_narrow else judged
        judged, left = _with_weights(sides, judged, precision)
        judged, said = _with_dtypes(sides, judged, precision)
        return Converted(judged, exact, (*notes, *left, *said))
    cases, notes = _fitting(sides, noise, precision)
    judged = conversion(sides.computed, sides.reference, sides.rounded, cases, noise.results)
    exact = _exact(sides, noise.weights, cases, narrow=True)
    judged = _worse(judged, exact, precision.name)
    judged, left = _with_weights(sides, judged, precision)
    judged, said = _with_dtypes(sides, _with_ranges(judged, noise, cases), precision)
    return Converted(judged, exact, (*notes, *left, *said))


def _with_dtypes(sides: Sides, judged: Judged, precision: Precision) -> tuple[Judged, list[str]]:
    """The answer with what is wrong with the dtypes of outputs, and a note on each other one that its framework has made."""
    wrong, notes = list[str](), list[str]()
    outputs, right = sides.computed.outputs, sides.reference.float32
    for name in sides.computed.names:
        key = case_key(0, name)
        pair = [array.dtype.name for array in (outputs[key], right[key])] if key in outputs and key in right else []
        if len(set(pair)) == 2:
            says, why = (
                f"output {name!r} is {pair[0]}, and the reference's is {pair[1]}",
                _gives(sides, pair, precision),
            )
            (notes if why else wrong).append(f"{says}: {why}" if why else says)
    if wrong:
        reason = "; ".join([*wrong, *([judged.error.reason] if judged.error.reason else [])])
        judged = replace(judged, error=replace(judged.error, verdict=Verdict.INVALID, reason=reason))
    return judged, notes


def _gives(sides: Sides, pair: Sequence[str], precision: Precision) -> str:
    """Why a right conversion may have another dtype of an output, a clause; "" where it may not. pair: the file's, the other."""
    kinds, against = set(pair), sides.against
    if sides.reference.precision == "recorded":
        return "recorded tensors may have another one"
    if kinds == {"float16", "float32"} and (
        pair[1] == "float16" or "float16" in (precision.weights, precision.computed)
    ):
        return "one of them is in float16"
    if kinds not in ({"int64", "int32"}, {"float64", "float32"}):
        return ""
    shorter = sides.opened if pair[0].endswith("32") else against
    if shorter is not None:
        return f"{shorter.form.runtime} often has no longer one" if shorter.form.shortens else ""
    # Frameworks without float64 have no int64 either, or not by default.
    return "the reference's framework often has no longer one" if sides.reference.precision == "float32" else ""


def _of_usual_size(sides: Sides, precision: Precision) -> tuple[list[int], list[str]]:
    """The cases to compare where no model tells what rounding may change, and a note on those that are left out.

    Nothing tells there for which values a static file was calibrated.
    """
    every = list(range(sides.cases.count))
    usual = [case for case in every if case >= len(sides.cases.kinds) or sides.cases.kinds[case] not in EXTREME]
    if precision.scheme != "static" or not usual or usual == every:
        return every, []
    kinds = ", ".join(dict.fromkeys(sides.cases.kinds[case] for case in every if case not in usual))
    note = f"the cases of {kinds} inputs are not compared, because nothing tells whether they fit the calibration; see --inputs"
    return usual, [note]


def _worse(judged: Judged, exact: Judged | None, name: str) -> Judged:
    """The worse answer of that on the outputs and that on what the file says in float64. name: of the precision."""
    if exact is None or exact.error.verdict <= judged.error.verdict or exact.error.verdict <= Verdict.EQUAL:
        return judged
    reason = f"what the file says in float64 is not what the reference says at {name}: {exact.error.reason}"
    return replace(judged, error=replace(exact.error, reason=reason))


def narrower_noise(
    opened: Opened, computed: Computed, layers: Layers | None, graphs: Worker | None, seed: int
) -> Floors | None:
    """The noise of a float32 file whose runtime computes in a narrower precision, where that explains all nodes that differ."""
    if layers is None or not layers.rounding or graphs is None:
        return None
    said = [layer.explanation or "" for layer in layers.layers if layer.rounding and not approximated(layer)]
    if not said:
        return None
    unit = UNITS["bfloat16" if any("bfloat16" in text for text in said) else "float16"]
    found = _rounded(opened.graph or opened.path, computed.inputs, opened.worker.folder, graphs, seed, unit, unit)
    return found.results if found.cases * len(computed.names) >= len(computed.own) else None


def step_noise(opened: Opened, computed: Computed, graphs: Worker | None, seed: int) -> Floors | None:
    """What half a step of every quantised value may change at the outputs of a file; None where that cannot be computed."""
    if graphs is None:
        return None
    try:
        return _rounded(opened.graph or opened.path, computed.inputs, opened.worker.folder, graphs, seed).weights
    except Refused:
        return None


def approximated(layer: LayerError) -> bool:
    """Whether a node differs because the runtime approximates its operator."""
    return layer.rounding and layer.explanation == APPROXIMATION.says


def _unit(precision: Precision) -> float | None:
    """The unit roundoff of a file in a narrow floating-point precision; None for any other file."""
    known = [UNITS[name] for name in (precision.weights, precision.computed) if name in UNITS]
    return None if precision.quantised else max(known, default=None)


@dataclass(frozen=True)
class _Noise:
    """How much rounding to a precision may change the outputs.

    weights: when weights and quantised values are rounded. results: when all results are rounded, too.
    clipped, cases: see ``RoundingEvaluated``.
    """

    weights: Floors
    results: Floors
    clipped: Mapping[str, float]
    cases: int


def _rounded(
    path: Path,
    inputs: Path,
    folder: Path,
    graphs: Worker,
    seed: int,
    weights: float | None = None,
    results: float | None = None,
    coarse: bool = False,
    reference: str = "",
) -> _Noise:
    """What rounding may change at the outputs of an ONNX file, under its own names.

    folder: gets the noise. weights, results, coarse, reference: see ``EvaluateRounding``.
    """
    one, every = folder / "rounded-weights.npz", folder / "rounded-results.npz"
    file = str(path.resolve())
    reply = graphs.ask(
        EvaluateRounding(file, str(inputs), str(one), str(every), seed, ENOUGH, weights, results, coarse, reference)
    )
    return _Noise(npz.OnDisk(one), npz.OnDisk(every), reply.clipped, reply.cases)


def _noise(sides: Sides, precision: Precision, coarse: bool) -> _Noise | None:
    """What rounding to the file's precision may change at the outputs, under the reference's names; None when it is unknown."""
    unit = _unit(precision)
    opened, folder = sides.opened, sides.opened.worker.folder
    if sides.graphs is not None and opened.graph is not None:
        try:
            pair = sides.graph_pair
            reference = pair[3] if pair is not None else ""
            inputs = sides.computed.inputs
            found = _rounded(opened.graph, inputs, folder, sides.graphs, sides.seed, coarse=coarse, reference=reference)
            weights, results = (renamed(each, sides.computed) for each in (found.weights, found.results))
            return replace(found, weights=weights, results=results)
        except Refused:  # an operator has no definition in float64; the reference's may have one
            if unit is None:
                raise
    against = sides.against
    if sides.graphs is not None and against is not None and against.is_onnx and unit is not None:
        inputs = against.worker.folder / INPUTS
        rounded = UNITS.get(precision.computed)
        return _rounded(against.path, inputs, folder, sides.graphs, sides.seed, unit, rounded)
    if unit is None or sides.reference.floors is None:
        return None
    # The noise of float32, as many times larger as the roundoff is.
    scaled = _scaled(sides.reference.floors, unit, sides.cases.arrays, sides.reference.outputs)
    return _Noise(scaled, scaled, {}, sides.cases.count)


def _fitting(sides: Sides, noise: _Noise, precision: Precision) -> tuple[list[int], list[str]]:
    """The cases to compare, and a note on each that is left out because a static file was calibrated for smaller values."""
    cases, notes = [], []
    for case in range(min(sides.cases.count, noise.cases)):
        kind = sides.cases.kinds[case] if case < len(sides.cases.kinds) else GIVEN
        outside = {key: share for key, share in noise.clipped.items() if int(key.partition("/")[0]) == case}
        worst = max(outside, key=lambda key: outside[key], default="")
        drawn = kind in EXTREME
        if drawn and precision.scheme == "static" and worst and outside[worst] > CUT:
            notes.append(
                f"the case of {kind} inputs is not compared with the reference, because it does not fit the calibration: "
                f"{100 * outside[worst]:.2g}% of the power of what {worst.partition('/')[2]} quantises lies outside of its range; "
                "--input-range or --inputs give inputs that fit"
            )
        else:
            cases.append(case)
    return cases, notes


def _exact(sides: Sides, floors: Floors, cases: Sequence[int], narrow: bool = False) -> Judged | None:
    """The answer on what the file says in float64; None where file or reference have no evaluation in float64."""
    own, reference = sides.own, sides.reference
    if own is None or sides.computed.is_turned or {own.precision, reference.precision} != {"float64"}:
        return None
    # Where time is short, fewer cases are evaluated in float64 than there are.
    chosen = [case for case in cases if all(each.cases is None or case < each.cases for each in (own, reference))]
    outputs: dict[str, Array] = {}
    for case in chosen:
        for theirs, mine in sides.computed.names.items():
            key = case_key(case, mine)
            if key not in own.outputs or own.outputs[key].shape != reference.outputs[case_key(case, theirs)].shape:
                return None  # its axes have another order
            outputs[case_key(case, theirs)] = own.outputs[key]
    return exact_conversion(outputs, reference, floors, chosen, narrow) if outputs else None


def _with_ranges(judged: Judged, noise: _Noise, cases: Sequence[int]) -> Judged:
    """The answer with the value that is cut off most, where it is not EQUAL."""
    clipped = {key: share for key, share in noise.clipped.items() if int(key.partition("/")[0]) in cases}
    worst = max(clipped, key=lambda key: clipped[key], default="")
    if judged.error.verdict <= Verdict.EQUAL or not worst or clipped[worst] < CUT:
        return judged
    case, _, node = worst.partition("/")
    says = (
        f"{100 * clipped[worst]:.2g}% of the power of what {node} quantises in case {case} lies outside of its range, and is cut "
        "off: other inputs may calibrate it better"
    )
    return replace(judged, error=replace(judged.error, reason="; ".join(filter(None, (judged.error.reason, says)))))


def _with_weights(sides: Sides, judged: Judged, precision: Precision) -> tuple[Judged, tuple[str, ...]]:
    """The answer with the weights that are not the reference's, and notes on weights that are not compared.

    Weights that are not the reference's, rounded, make the answer at least DRIFT. Quantised ones that are more than a step away
    make it DIFFERENT.
    """
    pair = sides.graph_pair
    if pair is None or not precision.is_narrow or judged.error.verdict == Verdict.INVALID:
        return judged, ()
    graphs, against, file, reference = pair
    question = CompareRoundedWeights(file, reference, str(against.worker.folder / INPUTS))
    try:
        reply = graphs.ask(question)
    except (Refused, TimedOut) as error:
        return judged, (f"its weights could not be compared with the reference's one by one: {error}",)
    sentences = (*reply.steps, *reply.sentences)
    if not sentences:
        return judged, reply.notes
    more = f"and {len(sentences) - SHOWN} more weights" if len(sentences) > SHOWN else ""
    reason = "; ".join(each for each in (*sentences[:SHOWN], more, judged.error.reason or "") if each)
    least = Verdict.DIFFERENT if reply.steps else Verdict.DRIFT
    return replace(
        judged, error=replace(judged.error, reason=reason, verdict=max(judged.error.verdict, least))
    ), reply.notes
