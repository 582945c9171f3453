"""The verdict on a model's outputs: the limits of each output by itself, then the worst of all outputs and layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from ..results.figures import shown_limit, shown_ratio
from ..results.layers import named, told
from ..results.records import MOST_FAULTS, Error, Layers, TensorError
from ..results.verdicts import Verdict
from . import limits

LIMIT = "detection_limit"  # begins the names of all detection limits
UNMOVED = "with all weights drawn anew, the outputs stay within the limits: no fault in a weight could show"


@dataclass(frozen=True)
class Context:
    """What the verdict on an output depends on besides its own error.

    modelled: whether the noise of all layers was modelled.
    layers: what a replay of the subject's framework found; None when there was none, or it compared no layer.
    constant: the outputs of the reference that are the same for every input.
    borrowed: whether the layers were captured in another callable than the one whose outputs are judged.
    cap: the largest detection limit of an output that counts as judged.
    growth: where the noise grows too large, as a clause; "" where that is not known.
    away: output -> largest distance from what the captured callable returned / noise of all layers. Outputs that could not be
        compared are absent.
    """

    modelled: bool
    layers: Layers | None = None
    constant: frozenset[str] = frozenset()
    borrowed: bool = False
    cap: float = limits.CAP
    growth: str = ""
    away: Mapping[str, float] = field(default_factory=dict)

    def coherent(self, case: int) -> bool:
        """Whether every layer was compared in this input case and is EQUAL in it."""
        return self.layers is not None and case in self.layers.equal_in

    def distance(self, output: str) -> float:
        """See ``away``; infinite when an output of a callable that was not captured could not be compared."""
        return self.away.get(output, math.inf) if self.borrowed else 0.0


def judged(tensor: TensorError, context: Context) -> TensorError:
    """The error of one output with its own verdict."""
    verdict = _by_limits(tensor, context)
    if tensor.output in context.constant or (verdict != Verdict.IDENTICAL and _is_blind(tensor, context)):
        verdict = max(verdict, Verdict.UNTESTED)
    times, names = (
        _loosened(tensor, verdict, context),
        [each.name for each in fields(tensor) if each.name.startswith(LIMIT)],
    )
    known = {name: getattr(tensor, name) for name in names}
    return replace(tensor, verdict=verdict, **{name: times * each for name, each in known.items() if each is not None})


def _loosened(tensor: TensorError, verdict: Verdict, context: Context) -> float:
    """The limit of a group that decided, divided by the usual one."""
    if not context.modelled:
        return limits.OWN_GROUP / limits.EQUAL_C
    earned = verdict == Verdict.EQUAL and distance(tensor) > limits.EQUAL_RHO
    return limits.COHERENT_RHO / limits.EQUAL_RHO if earned else 1.0


def distance(tensor: TensorError) -> float:
    """The residual / noise of an output, or of its worst group of values in the same measure, whichever is larger."""
    return max(measure(tensor), (tensor.local_ratio or 0.0) * limits.EQUAL_RHO / limits.EQUAL_C)


def _is_blind(tensor: TensorError, context: Context) -> bool:
    """Whether an error as large as the cap, in all values, in most of them, or in a whole index, would not have been seen."""
    return (
        (tensor.detection_limit or 0.0) > context.cap
        or tensor.undetermined > limits.MOST_UNDETERMINED
        or _parts(tensor, context)
    )


def _parts(tensor: TensorError, context: Context) -> bool:
    """Whether an index of an output is not judged. In lower precisions, that of a file is judged by all values together."""
    return bool(tensor.not_judged) and context.cap <= limits.CAP


def _by_limits(tensor: TensorError, context: Context) -> Verdict:
    if tensor.reason is not None:
        return Verdict.INVALID
    if tensor.identical:
        return Verdict.IDENTICAL
    if not context.modelled:
        return limits.classify(measure(tensor), limits.OWN, tensor.local_ratio or 0.0)
    coherent, away = context.coherent(tensor.case), context.distance(tensor.output)
    found = limits.classify_rho(measure(tensor), coherent, away, tensor.local_ratio or 0.0)
    if found == Verdict.EQUAL or tensor.rounding_ratio is None:
        return found
    return Verdict.DRIFT if tensor.rounding_ratio <= _rounding_limit(context) else Verdict.DIFFERENT


def _rounding_limit(context: Context) -> float:
    """The limit of the residual / noise with the explained roundings. Layers in DRIFT for another reason may add to it."""
    explained = context.layers is not None and context.layers.rounding
    return limits.EQUAL_RHO if explained else limits.DRIFT_RHO


def measure(tensor: TensorError) -> float:
    """The residual / noise floor of an output; infinite when there is none."""
    ratio = tensor.float32_ratio if tensor.noise_ratio is None else tensor.noise_ratio
    return math.inf if ratio is None else ratio


def doubtful(error: Error) -> tuple[int, ...]:
    """The input cases with an output that is beyond a limit, where a noise floor may have been measured too small.

    It is beyond by little, or all layers are EQUAL in this case: a decision that rounding changes may lie between them.
    """
    right = () if error.layers is None else error.layers.equal_in
    return tuple(
        sorted(
            {
                each.case
                for each in error.tensors
                if each.verdict is not None and each.verdict > Verdict.EQUAL and each.noise_ratio is not None
                if each.case in right
                or (each.noise_ratio <= limits.DRIFT_RHO and (each.local_ratio or 0.0) <= limits.NEAR * limits.DRIFT_C)
            }
        )
    )


def conclusion(tensors: Sequence[TensorError], context: Context) -> tuple[Verdict, str | None, float]:
    """The worst verdict on an output or on the layers, its reason (None when none is needed), and the share that was judged.

    A case of an output that is UNTESTED counts for the share alone where the output is judged in another case, and so does a layer.
    """
    layers = None if all(tensor.identical for tensor in tensors) else context.layers
    share = min(_judged_outputs(tensors), 1.0 if layers is None else layers.judged)
    worst = max(_deciding(tensors), key=lambda tensor: (_verdict(tensor), distance(tensor)))
    verdict, reason = _verdict(worst), worst.reason
    if reason is None:
        verdict, reason = _with_layers(worst, layers, context)
    if share < 1 and verdict < Verdict.UNTESTED:
        says = _unjudged(tensors, layers, context)
        if share < limits.LEAST_JUDGED:
            verdict, says = Verdict.UNTESTED, f"{says}; at least {limits.LEAST_JUDGED:.0%} must be judged"
        reason = "; ".join(filter(None, [says, reason]))
    if verdict == Verdict.IDENTICAL and not all(tensor.identical for tensor in tensors):
        verdict = Verdict.EQUAL
    return verdict, reason, share


def without_witness(error: Error, growth: str = "") -> Error:
    """The error of a comparison that no other weights would change: it is UNTESTED, where it is not wrong.

    growth: see Context.
    """
    if error.verdict >= Verdict.UNTESTED:
        return error
    return replace(error, verdict=Verdict.UNTESTED, reason="; ".join(filter(None, [UNMOVED, growth, error.reason])))


def demanded(error: Error, require: float | None, strict: bool) -> Error:
    """The error with what a user asks of it: UNTESTED when it does not show enough.

    require: the relative error that must show in every output; None: what the cap asks for.
    strict: whether every output and every layer must be judged, and every branch and side be reached.
    """
    if error.verdict >= Verdict.UNTESTED:
        return error
    says = (
        f"--strict asks that the inputs reach everything: {named(error.unreached)}"
        if strict and error.unreached
        else ""
    )
    if not says and error.verdict == Verdict.IDENTICAL:
        return error
    says = says or (_not_required(error, require) if require is not None else "")
    if not says and strict and error.judged is not None and error.judged < 1:
        says = "--strict asks for a verdict on every output and layer"
    if not says:
        return error
    return replace(error, verdict=Verdict.UNTESTED, reason="; ".join(filter(None, [says, error.reason])))


def _not_required(error: Error, require: float) -> str:
    """Which output would not have shown the relative error that is required; "" when all would."""
    asked = f"{require:g} was required"
    for tensor in error.tensors:
        if not tensor.identical and not (tensor.detection_limit is not None and tensor.detection_limit <= require):
            return f"{_would_not_show(tensor)}; {asked}"
    if not error.tensors and not (error.detection_limit is not None and error.detection_limit <= require):
        return f"no detection limit is known; {asked}"
    return ""


def _would_not_show(tensor: TensorError) -> str:
    if tensor.detection_limit is None:
        return f"the detection limit of `{tensor.output}` is not known"
    error = shown_limit(tensor.detection_limit)
    return f"a relative error of {error} would not have been seen in `{tensor.output}`, case {tensor.case}"


def _deciding(tensors: Sequence[TensorError]) -> Sequence[TensorError]:
    """The errors that decide. A case that is UNTESTED decides only for an output that is judged in no case."""
    known = {tensor.output for tensor in tensors if _verdict(tensor) != Verdict.UNTESTED}
    return [tensor for tensor in tensors if _verdict(tensor) != Verdict.UNTESTED or tensor.output not in known]


def _judged_outputs(tensors: Sequence[TensorError]) -> float:
    return sum(_verdict(tensor) != Verdict.UNTESTED for tensor in tensors) / max(1, len(tensors))


def _with_layers(worst: TensorError, layers: Layers | None, context: Context) -> tuple[Verdict, str | None]:
    """The verdict and reason of the worst output, or of the layers where they are worse."""
    verdict = _verdict(worst)
    if layers is not None and layers.verdict > Verdict.EQUAL:
        verdict = max(verdict, layers.verdict)
        if layers.verdict == verdict:
            return verdict, "; ".join(told(layers.faults, MOST_FAULTS))
    return verdict, _reason(worst, context)


def _unjudged(tensors: Sequence[TensorError], layers: Layers | None, context: Context) -> str:
    """What was not judged."""
    parts = []
    vague = [tensor for tensor in tensors if _verdict(tensor) == Verdict.UNTESTED]
    if vague:
        parts.append(f"{len(vague)} of {len(tensors)} outputs (the first is `{vague[0].output}`, case {vague[0].case})")
    if layers is not None and layers.untested:
        names = named(layer.layer for layer in layers.untested)
        parts.append(f"{len(layers.untested)} of {len(layers.layers)} layers ({names})")
    return f"UNTESTED: a relative error of {context.cap:g} would not have been seen in {' and '.join(parts)}"


def _verdict(tensor: TensorError) -> Verdict:
    return Verdict.INVALID if tensor.verdict is None else tensor.verdict


def _reason(tensor: TensorError, context: Context) -> str | None:
    """Why an output has its verdict; None for one that is plainly EQUAL."""
    verdict, ratio = _verdict(tensor), measure(tensor)
    if verdict == Verdict.UNTESTED and tensor.output in context.constant:
        return f"output {tensor.output!r} of the reference is the same for every input: no fault could show in it"
    if verdict == Verdict.UNTESTED:
        return _blind(tensor, context)
    place = f"{tensor.output}, case {tensor.case}: error"
    if tensor.output in context.constant:
        place = (
            f"output {tensor.output!r} of the reference is the same for every input, and this one is another: {place}"
        )
    if not context.modelled:
        return (
            None if verdict <= Verdict.EQUAL else f"{place} is {ratio:.3g} x float32's own (limit {limits.OWN_EQUAL:g})"
        )
    if verdict <= Verdict.EQUAL:
        if ratio <= limits.EQUAL_RHO or tensor.identical or context.layers is None:
            return None
        return _excuse(place, tensor, context, context.layers)
    if tensor.rounding_ratio is not None and context.layers is not None:
        explained = next((context.layers.describe(layer) for layer in context.layers.layers if layer.rounding), "")
        return (
            f"{place} is {tensor.rounding_ratio:.3g} x what rounding can come to, the other precision of some layers included "
            f"(limit {_rounding_limit(context):g}); {explained}"
        )
    says = "; ".join(filter(None, [f"{place} is {_times_noise(tensor, verdict)}", detection(tensor)]))
    return says + _no_excuse(tensor, context)


def _times_noise(tensor: TensorError, verdict: Verdict) -> str:
    """How many times the noise an error is, as a whole, or in the group of values that is beyond its limit."""
    rule, drift = limits.OUTPUT, verdict == Verdict.DRIFT
    limit, local_limit = (rule.equal, rule.worst_equal) if drift else (rule.drift, rule.worst_drift)
    ratio, local = measure(tensor), tensor.local_ratio or 0.0
    if ratio <= limit and local > local_limit:
        where = (
            f"its worst group of values, `{tensor.output}{tensor.local_at}`"
            if tensor.local_at
            else "its worst group of values"
        )
        return f"{shown_ratio(local, 3)} x the noise of {where} (limit {local_limit:g})"
    return f"{shown_ratio(ratio, 3)} x the noise of all layers (limit {limit:g})"


def _named(tensor: TensorError, indices: Sequence[str]) -> str:
    """Some indices of an output, the first ones by name."""
    return named(f"{tensor.output}{each}" for each in indices)


def detection(tensor: TensorError) -> str:
    """What rounding explains of an output, and what would have been seen; "" where no detection limit was measured."""
    if not tensor.detection_limit:
        return ""
    limits_of = {
        "in all values": tensor.detection_limit,
        "in one class, channel or item": tensor.detection_limit_index,
        "in one value": tensor.detection_limit_value,
    }
    said = [f"from {shown_limit(each)} on {where}" for where, each in limits_of.items() if each is not None]
    seen = f"a relative error {', '.join(said)} would have been seen"
    if tensor.not_judged:
        seen += f", but not in {_named(tensor, tensor.not_judged)}"
    if tensor.rounding_alone:
        parts = _named(tensor, tensor.rounding_alone)
        seen += (
            f"; {parts}: zero but for rounding, so without a relative limit: the error is compared with its own noise"
        )
    if not tensor.rel_rms or not tensor.noise_ratio or not math.isfinite(tensor.noise_ratio):
        return f"`{tensor.output}`: {seen}"
    # Beside one large value, the noise of all values together is a small part of it, and that of a typical group is not.
    share = max(tensor.rel_rms / tensor.noise_ratio, tensor.detection_limit / limits.EQUAL_C)
    return f"rounding explains up to {share:.2g} of `{tensor.output}`; {seen}"


def _blind(tensor: TensorError, context: Context) -> str:
    """Why an output is UNTESTED although its error is within the noise."""
    place, undetermined = f"{tensor.output}, case {tensor.case}", tensor.undetermined
    if undetermined > limits.MOST_UNDETERMINED:
        says = f"{place}: {undetermined:.0%} of the values have no digit that rounding leaves, so no fault could show in them"
    elif (tensor.detection_limit or 0.0) <= context.cap:
        parts = _named(tensor, tensor.not_judged)
        says = f"a relative error of {context.cap:g} would not have been seen in {parts}: rounding alone changes it that much"
    else:
        says = f"{_would_not_show(tensor)} (limit {context.cap:g}), because rounding alone changes the output that much"
    return "; ".join(filter(None, [says, context.growth]))


def _excuse(place: str, tensor: TensorError, context: Context, layers: Layers) -> str:
    """Why an output is EQUAL although its residual is more than EQUAL_RHO times the noise."""
    why = "every layer was compared in this callable and this input case, and is EQUAL"
    if context.borrowed:
        away = f"{context.distance(tensor.output):.2g} x this noise away from what {_captured(layers)} returned"
        why = f"every layer there is EQUAL, and the outputs are {away} (limit {limits.EQUAL_RHO:g})"
    size = f"{shown_ratio(measure(tensor), 3)} x the noise of all layers"
    return f"{place} is {size}, which may be up to {limits.COHERENT_RHO:g} because {why}"


def _no_excuse(tensor: TensorError, context: Context) -> str:
    """Why layers that are EQUAL do not excuse this output; "" when the layers are not EQUAL."""
    layers = context.layers
    if layers is None or layers.verdict != Verdict.EQUAL:
        return ""
    text = "; every layer that was compared is EQUAL"
    if layers.untested:
        return f"{text}, but {len(layers.untested)} of {len(layers.layers)} could not have shown a fault"
    if tensor.case not in layers.cases:
        return f"{text}, but no layer was compared in this input case"
    if not layers.complete:
        return f"{text}, but only {layers.compared} of {layers.known} were compared completely"
    away = context.distance(tensor.output)
    if away <= limits.EQUAL_RHO:
        return text
    distance = f"{away:.3g} x this noise away from" if math.isfinite(away) else "not comparable with"
    return f"{text}, but in another callable: the outputs are {distance} what {_captured(layers)} returned"


def _captured(layers: Layers) -> str:
    """The captured callable, in words."""
    return f"the captured pass of {layers.subject}" + (f" (in mode {layers.mode})" if layers.mode else "")
