"""Searches for the known fault that explains what a layer computes."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import first_line
from ...float64.layer_kinds import channel_axis, judged_terms
from ...float64.stepping import Models
from ...float64.structures import as_float64, flatten
from ...results.verdicts import Verdict
from ...verdict import limits
from ...verdict.findings import OUTPUT, Explanation, Finding
from ..fused import FusedLayer, FusedLayers
from ..layout import first_layout
from ..tensors import Capture, Floors, Place, judge, known_noise, rms
from .difference import describe
from .evidence import FAR_BETTER, RIVAL, excess
from .faults import catalogue
from .faults.fault import PortFault
from .faulty_layer import faulty_output
from .glue_search import GlueSearch
from .rounded_sums import ROUNDED_SUMS, has_sums, output_has_rounded_sums

FAILED_SEARCHES = 3  # layers without an explanation after which the search ends, because it is slow


class Explainer:
    """Finds the known fault that turns the reference's layer into what was captured.

    fused: recognises a faulty layer that ends in an activation.
    code: searches in the layer's own code.
    explained: layer -> its explanation. failed: layer -> the error that ended the search for one.
    """

    def __init__(self, models: Models, capture: Capture, fused: FusedLayers) -> None:
        self.models, self.capture, self.fused = models, capture, fused
        self.code = GlueSearch(models, capture)
        self.explained: dict[str, Explanation] = {}
        self.likely_kind: str | None = None
        self.remaining_searches = FAILED_SEARCHES
        self.failed: dict[str, str] = {}

    def explain(self, finding: Finding, captured: Tensor, floors: Floors, args: Any) -> FusedLayer | None:
        """Explain the first output of a layer; once for each layer.

        captured: the output, in the reference's layout where its shape fits.
        args: the arguments of the call, in float64.
        Returns the layer as one with a fault before an activation, where this explains the output; else None.
        """
        if finding.layer in {*self.explained, *self.failed} or self.remaining_searches == 0:
            return None
        try:
            return self._explain(finding, captured, floors, args)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            # What was judged stays, although a layer does not compute in the form that the search for a cause expects.
            traceback.print_exc()
            self.failed[finding.layer] = f"{type(error).__name__}: {first_line(error)}"
            return None

    def notes(self) -> Iterator[str]:
        """A sentence on each layer whose cause could not be searched."""
        for name, error in self.failed.items():
            yield f"`{name}` differs, and its cause could not be searched: {error}"

    def _explain(self, finding: Finding, captured: Tensor, floors: Floors, args: Any) -> FusedLayer | None:
        name, layer = finding.layer, self.models.layers[finding.layer]
        found = self._fault(finding, captured, floors, args)
        if found is None and has_sums(layer):
            x = as_float64(flatten(args)[0])
            if output_has_rounded_sums(layer, x, captured, floors, finding):
                found = ROUNDED_SUMS
        fused = self.fused.faulty_layer(finding, captured, args) if found is None else None
        if fused is not None and fused.fault is not None:
            self.likely_kind = fused.fault.kind
            found = Explanation(fused.fault.kind, fused.fault.says, fused.fault.rounding)  # other faults were not tried
        if found is None:
            found = self.code.of_layer(finding, args, captured, floors, channel_axis(layer, captured.dim()))
        if found is None:
            self.remaining_searches -= 1
            found = describe(
                captured, floors.exact, lambda exact: self._fits(finding, captured, floors.of(exact), args)
            )
        if found is not None:
            self.explained[name] = found
        return fused

    def _fault(self, finding: Finding, captured: Tensor, floors: Floors, args: Any) -> Explanation | None:
        """The fault that explains the output; None when none does, or when several others do as well.

        A later fault must agree twice as well as an earlier one to be chosen. Where another kind of fault fits nearly as well, both
        are named, and a rounding among them excuses nothing.
        """
        fitting = list(self._fitting_faults(finding, captured, floors, args))
        if not fitting:
            return None
        best, ratio = fitting[0]
        for fault, other in fitting[1:]:
            if other < ratio / 2:
                best, ratio = fault, other
        near = [fault for fault, other in fitting if fault.kind != best.kind and other <= RIVAL * ratio]
        rivals = self._that_compute_otherwise(near, best, finding, args)
        if len({fault.kind for fault in rivals}) > 1:
            return None
        self.likely_kind = best.kind
        says = best.says + (f", or {rivals[0].says}: these inputs cannot tell which" if rivals else "")
        rounding = best.rounding and all(fault.rounding for fault in rivals)
        return Explanation(best.kind, says, rounding, mistake=not (best.rounding or rivals))

    def _fitting_faults(
        self, finding: Finding, captured: Tensor, floors: Floors, args: Any
    ) -> Iterator[tuple[PortFault, float]]:
        """The faults that bring the output under the limits, and fit far better than none, each with R of the output."""
        faults = list(catalogue.explanatory_faults(self.models.layers[finding.layer]))
        if self.likely_kind is not None:  # other layers of a port mostly have the fault of the first one
            faults.sort(key=lambda fault: fault.kind != self.likely_kind)
        for fault in faults:
            found = self._judged(fault, finding, captured, floors, args)
            if found is None or excess(found) * FAR_BETTER > excess(finding):
                continue
            yield fault, found.ratio
            if fault.kind == self.likely_kind and found.ratio < 1.0:
                return

    def _that_compute_otherwise(
        self, faults: Sequence[PortFault], best: PortFault, finding: Finding, args: Any
    ) -> list[PortFault]:
        """The faults whose result is not that of the best one to the last bit: several faults may be one and the same here."""
        layer = self.models.layers[finding.layer]
        output = faulty_output(self.models, layer, best, args) if faults else None
        return [
            fault
            for fault in faults
            if output is None
            or (other := faulty_output(self.models, layer, fault, args)) is None
            or not _same(output, other)
        ]

    def _judged(
        self, fault: PortFault, finding: Finding, captured: Tensor, floors: Floors, args: Any
    ) -> Finding | None:
        """The comparison of the output with that of a layer with this fault; None when the fault does not explain it."""
        layer = self.models.layers[finding.layer]
        output = faulty_output(self.models, layer, fault, args)
        if output is None:
            return None
        if tuple(output.shape) != tuple(captured.shape):
            fitted = first_layout(captured, output.shape, layer, self.capture.channels_last)
            if fitted is None:
                return None
            captured = fitted
        if output.shape == floors.exact.shape:
            floors, worst_accepted = floors.of(output), Verdict.EQUAL
        else:  # the noise floor of another shape was not measured
            noise = known_noise(torch.full_like(output, limits.UNIT * rms(output)))
            floors, worst_accepted = Floors(output, None, None, noise=(noise, None)), Verdict.DRIFT
        place = Place(finding.layer, 0, 0, finding.kind, OUTPUT)
        terms, axis = judged_terms(layer, flatten(args)), channel_axis(layer, output.dim())
        found = judge(place, captured, floors, terms, axis)
        return found if found.verdict <= worst_accepted else None

    def _fits(self, finding: Finding, captured: Tensor, floors: Floors, args: Any) -> bool:
        """Whether the output is EQUAL to another exact one, and far nearer to it than to the reference's."""
        layer = self.models.layers[finding.layer]
        place = Place(finding.layer, 0, 0, finding.kind, OUTPUT)
        axis = channel_axis(layer, captured.dim())
        found = judge(place, captured, floors, judged_terms(layer, flatten(args)), axis)
        return found.verdict == Verdict.EQUAL and excess(found) * FAR_BETTER <= excess(finding)

    def visibility(self, layer: nn.Module, index: int, args: Any, floors: Floors) -> float:
        """The change that a plantable fault makes to the exact output of a layer, in noise floors.

        index: place of the fault in ``catalogue.plantable_faults``.
        """
        changed = faulty_output(self.models, layer, catalogue.plantable_faults(layer)[index], args)
        if changed is None or changed.shape != floors.exact.shape:
            return math.inf
        terms, axis = judged_terms(layer, flatten(args)), channel_axis(layer, changed.dim())
        found = judge(Place("", 0, 0, "", ""), changed, floors, terms, axis)
        return max(found.ratio, found.channel_ratio)


def _same(tensor: Tensor, other: Tensor) -> bool:
    return tensor.shape == other.shape and torch.equal(tensor, other)
