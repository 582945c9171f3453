"""The verdict on a model's outputs: the limits of each output by itself, then the worst of all outputs and layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..results.records import Layers, TensorError
from ..results.verdicts import Verdict
from . import limits

OWN_EQUAL, OWN_DRIFT = 10.0, 30.0  # limits where the noise floor is the error of one float32 run


@dataclass(frozen=True)
class Context:
    """What the verdict on an output depends on besides its own error.

    modelled: whether the noise of all layers was modelled.
    layers: what a replay of the subject's framework found; None when there was none, or it compared no layer.
    constant: the outputs of the reference that are the same for every input.
    borrowed: whether the layers were captured in another callable than the one whose outputs are judged.
    away: output -> largest distance from what the captured callable returned / noise of all layers. An output that is absent could
        not be compared.
    """

    modelled: bool
    layers: Layers | None = None
    constant: frozenset[str] = frozenset()
    borrowed: bool = False
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
    if tensor.output in context.constant:
        verdict = max(verdict, Verdict.UNTESTED)
    return replace(tensor, verdict=verdict)


def _by_limits(tensor: TensorError, context: Context) -> Verdict:
    if tensor.reason is not None:
        return Verdict.INVALID
    if tensor.identical:
        return Verdict.IDENTICAL
    if not context.modelled:
        ratio = measure(tensor)
        return Verdict.EQUAL if ratio <= OWN_EQUAL else Verdict.DRIFT if ratio <= OWN_DRIFT else Verdict.DIFFERENT
    found = limits.classify_rho(measure(tensor), context.coherent(tensor.case), context.distance(tensor.output))
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


def conclusion(tensors: Sequence[TensorError], context: Context) -> tuple[Verdict, str | None]:
    """The worst verdict on an output or on the layers, and its reason, which is None when none is needed."""
    worst = max(tensors, key=lambda tensor: (_verdict(tensor), measure(tensor)))
    verdict, layers = _verdict(worst), context.layers
    if worst.reason is not None:
        return verdict, worst.reason
    if layers is not None and not all(tensor.identical for tensor in tensors):
        verdict = max(verdict, layers.verdict) if layers.verdict != Verdict.EQUAL else verdict
        first = layers.first
        if first is not None and first.verdict == verdict:
            others = [layers.describe(layer) for layer in layers.layers if layer is not first and layer.explanation]
            return verdict, "; ".join([layers.describe(first), *others[:2]])
    return verdict, _reason(worst, context)


def _verdict(tensor: TensorError) -> Verdict:
    return Verdict.INVALID if tensor.verdict is None else tensor.verdict


def _reason(tensor: TensorError, context: Context) -> str | None:
    """Why an output has its verdict; None for one that is plainly EQUAL."""
    verdict, ratio = _verdict(tensor), measure(tensor)
    if verdict == Verdict.UNTESTED:
        return f"output {tensor.output!r} of the reference is the same for every input: no fault could show in it"
    place = f"{tensor.output}, case {tensor.case}: error"
    if tensor.output in context.constant:
        place = (
            f"output {tensor.output!r} of the reference is the same for every input, and this one is another: {place}"
        )
    if not context.modelled:
        return None if verdict <= Verdict.EQUAL else f"{place} is {ratio:.3g} x float32's own (limit {OWN_EQUAL:g})"
    if verdict <= Verdict.EQUAL:
        return None if ratio <= limits.EQUAL_RHO or tensor.identical else _excuse(place, tensor, context)
    if tensor.rounding_ratio is not None and context.layers is not None:
        explained = next((context.layers.describe(layer) for layer in context.layers.layers if layer.rounding), "")
        return (
            f"{place} is {tensor.rounding_ratio:.3g} x what rounding can come to, the other precision of some layers included "
            f"(limit {_rounding_limit(context):g}); {explained}"
        )
    limit = limits.EQUAL_RHO if verdict == Verdict.DRIFT else limits.DRIFT_RHO
    return f"{place} is {ratio:.3g} x the noise of all layers (limit {limit:g}){_no_excuse(tensor, context)}"


def _excuse(place: str, tensor: TensorError, context: Context) -> str:
    """Why an output is EQUAL although its residual is more than EQUAL_RHO times the noise."""
    assert context.layers is not None
    why = "every layer was compared in this callable and this input case, and is EQUAL"
    if context.borrowed:
        away = f"{context.distance(tensor.output):.2g} x this noise away from what {_captured(context.layers)} returned"
        why = f"every layer there is EQUAL, and the outputs are {away} (limit {limits.EQUAL_RHO:g})"
    return f"{place} is {measure(tensor):.3g} x the noise of all layers, which may be up to {limits.COHERENT_RHO:g} because {why}"


def _no_excuse(tensor: TensorError, context: Context) -> str:
    """Why layers that are EQUAL do not excuse this output; "" when the layers are not EQUAL."""
    layers = context.layers
    if layers is None or layers.verdict != Verdict.EQUAL:
        return ""
    text = "; every layer that was compared is EQUAL"
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
