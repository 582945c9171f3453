"""Searches for the known fault that explains what a layer computes."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from ..results.verdicts import Verdict
from ..verdict.findings import OUTPUT, Explanation, Finding
from .difference import describe
from .faults import catalogue
from .faults.fault import PortFault
from .layer_kinds import channel_axis, is_training_norm, summed_terms
from .layout import first_layout
from .rounded_sums import ROUNDED_SUMS, output_has_rounded_sums
from .stepping import Models
from .structures import as_float64, flatten, map_tensors
from .tensors import Capture, Floors, Place, judge

FAILED_SEARCHES = 3  # layers without an explanation after which the search ends, because it is slow
# Exceptions of a fault that does not fit a layer of this shape.
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, AssertionError, NotImplementedError)


class Explainer:
    """Finds the known fault that turns the reference's layer into what was captured.

    explained: layer -> its explanation.
    """

    def __init__(self, models: Models, capture: Capture) -> None:
        self.models, self.capture = models, capture
        self.explained: dict[str, Explanation] = {}
        self.likely_kind: str | None = None
        self.remaining_searches = FAILED_SEARCHES

    def explain(self, finding: Finding, captured: Tensor, floors: Floors, args: Any) -> None:
        """Explain the first output of a layer; once for each layer.

        captured: the output, in the reference's layout where its shape fits.
        args: the arguments of the call, in float64.
        """
        name = finding.layer
        if name in self.explained or self.remaining_searches == 0:
            return
        layer = self.models.layers[name]
        fault = self._best_fault(finding, captured, floors, args)
        if fault is not None:
            self.likely_kind = fault.kind
            self.explained[name] = Explanation(fault.kind, fault.says, fault.rounding)
            return
        if is_training_norm(layer):
            x = as_float64(flatten(args)[0])
            if output_has_rounded_sums(layer, x, captured, floors, finding):
                self.explained[name] = ROUNDED_SUMS
                return
        self.remaining_searches -= 1
        described = describe(captured, floors.exact)
        if described is not None:
            self.explained[name] = described

    def _best_fault(self, finding: Finding, captured: Tensor, floors: Floors, args: Any) -> PortFault | None:
        """The fault with which the output agrees best. A later fault must agree twice as well as an earlier one to be chosen."""
        faults = list(catalogue.explanatory_faults(self.models.layers[finding.layer]))
        if self.likely_kind is not None:  # other layers of a port mostly have the fault of the first one
            faults.sort(key=lambda fault: fault.kind != self.likely_kind)
        best: tuple[float, PortFault] | None = None
        for fault in faults:
            ratio = self._ratio(fault, finding, captured, floors, args)
            if ratio is not None and (best is None or ratio < best[0] / 2):
                best = ratio, fault
                if ratio < 1.0:
                    break
        return None if best is None else best[1]

    def _ratio(self, fault: PortFault, finding: Finding, captured: Tensor, floors: Floors, args: Any) -> float | None:
        """R of the captured output if the layer had this fault; None when the fault does not explain the output."""
        layer = self.models.layers[finding.layer]
        output = self.faulty_output(layer, fault, args)
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
            floors, worst_accepted = Floors(output, None, None), Verdict.DRIFT
        place = Place(finding.layer, 0, 0, finding.kind, OUTPUT)
        terms, axis = summed_terms(layer, flatten(args)), channel_axis(layer, output.dim())
        found = judge(place, captured, floors, terms, axis)
        return found.ratio if found.verdict <= worst_accepted else None

    def faulty_output(self, layer: nn.Module, fault: PortFault, args: Any) -> Tensor | None:
        """The first output of the layer with this fault; None where the fault does not fit the layer."""
        positional, keyword = map_tensors(args, Tensor.clone)
        try:
            result = fault.forward(layer, self.models.forwards[layer], *positional, **keyword)
        except REFUSALS:
            return None
        return next(iter(flatten(result)), None)

    def visibility(self, layer: nn.Module, index: int, args: Any, floors: Floors) -> float:
        """The change that a plantable fault makes to the exact output of a layer, in noise floors.

        index: place of the fault in ``catalogue.plantable_faults``.
        """
        changed = self.faulty_output(layer, catalogue.plantable_faults(layer)[index], args)
        if changed is None or changed.shape != floors.exact.shape:
            return math.inf
        terms, axis = summed_terms(layer, flatten(args)), channel_axis(layer, changed.dim())
        found = judge(Place("", 0, 0, "", ""), changed, floors, terms, axis)
        return max(found.ratio, found.channel_ratio)
