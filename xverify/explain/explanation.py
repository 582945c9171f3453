"""Searches for what explains the differences that a replay finds."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..errors import first_line
from ..float64.layer_kinds import channel_axis, judged_terms
from ..float64.stepping import Models, Pause
from ..float64.structures import as_float64, flatten
from ..replay.causes import Causes
from ..replay.difference import Difference
from ..replay.fused import FusedLayer, FusedLayers, may_be_fused
from ..replay.layout import first_layout
from ..replay.rounded_sums import ROUNDED_SUMS, has_sums, output_has_rounded_sums
from ..replay.tape import Tape
from ..replay.tensors import Capture, Floors, Place, judge, known_noise, rms
from ..results.verdicts import Verdict
from ..verdict import limits
from ..verdict.findings import Explanation, Finding
from .deadline import Deadline, OutOfTime
from .evidence import best_and_near, fits, is_far_better
from .explained_roundings import with_rounding
from .faults import catalogue
from .faults.fault import PortFault
from .faulty_layer import faulty_floors, faulty_output
from .glue_search import GlueSearch
from .patterns import describe

FAILED_SEARCHES = 3  # layers without an explanation after which the search ends, because it is slow
SECONDS = 60.0  # of computation that the searches of one replay may take


class Explainer(Causes):
    """Finds the known fault that turns what the reference computes into what was captured.

    planted: a fault that the capture is known to have, as (layer, index in ``catalogue.plantable_faults``). A mutation does not
        expect a fault to be found that no test could see.
    glue: searches in the glue code. code: searches in a layer's own code.
    failed: layer -> the error that ended the search for its explanation. ended: whether the time for all searches is over.
    """

    def __init__(
        self,
        models: Models,
        capture: Capture,
        fused: FusedLayers,
        tape: Tape,
        planted: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(models, capture, fused, tape)
        self.planted = planted
        self.glue, self.code = GlueSearch(models, capture, tape), GlueSearch(models, capture, Tape())
        self.likely_kind: str | None = None
        self.remaining_searches = FAILED_SEARCHES
        self.failed: dict[str, str] = {}
        self.deadline = Deadline(SECONDS)
        self.ended = False

    def computed(self, layer: str, args: Any, floors: Sequence[Floors]) -> None:
        """Measure how far a planted fault shows."""
        if self.planted is not None and self.planted[0] == layer:
            self.visible = max(
                self.visible, self._visibility(self.models.layers[layer], self.planted[1], args, floors[0])
            )

    def _visibility(self, layer: nn.Module, index: int, args: Any, floors: Floors) -> float:
        """The change that a plantable fault makes to the exact output of a layer, in noise floors."""
        changed = faulty_output(self.models, layer, catalogue.plantable_faults(layer)[index], args)
        if changed is None or changed.shape != floors.exact.shape:
            return math.inf
        terms, axis = judged_terms(layer, flatten(args)), channel_axis(layer, changed.dim())
        finding = judge(Place("", 0, 0, "", ""), changed, floors, terms, axis)
        return max(finding.ratio, finding.channel_ratio)

    def notes(self) -> Iterator[str]:
        """A sentence on each layer whose cause could not be searched."""
        for name, error in self.failed.items():
            yield f"`{name}` differs, and its cause could not be searched: {error}"
        if self.ended:
            yield f"the search for causes ended after {SECONDS:g} s of computation"

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Search within the context, and end when the time is over. What was found until then is not used: it may have rivals."""
        try:
            with self.deadline.limited():
                yield
        except OutOfTime:
            self.ended, self.remaining_searches, self.glue.remaining_searches = True, 0, 0

    # -- glue code ------------------------------------------------------------------------------------------------------

    def compared(self, pause: Pause) -> None:
        """Note that a layer was compared: its tensors may be passed on in place of the right ones."""
        self.glue.compared(pause)

    def of_glue(self, difference: Difference) -> Finding:
        """Explain what glue code computes."""
        return self._with_glue(difference, difference)

    def through_layer(self, difference: Difference, pause: Pause, args: Any) -> Finding:
        """Explain a wrong output of a layer by the glue code before it."""
        outputs = self.glue.outputs(self.models.layers[pause.layer], args, pause.spots)
        if difference.finding.index >= len(outputs):
            return difference.finding
        exact = outputs[difference.finding.index]
        return self._with_glue(difference, replace(difference, floors=difference.floors.of(exact)))

    def _with_glue(self, difference: Difference, recorded: Difference) -> Finding:
        """The finding with its explanation. recorded: the difference from the tensor whose operations were recorded."""
        explanation = None
        with self._in_time():
            explanation = self.glue.explanation(recorded)
        if explanation is None:
            return difference.finding
        return replace(difference.finding, glue=explanation.says, mistake=explanation.mistake)

    # -- layers ---------------------------------------------------------------------------------------------------------

    def rounded(self, difference: Difference, args: Any) -> Finding:
        """The finding with the rounding that explains its layer, where it reproduces this very output."""
        return with_rounding(self.models, self.explained.get(difference.finding.layer), difference, args)

    def of_layer(self, difference: Difference, args: Any) -> FusedLayer | None:
        """Explain the first output of a layer; once for each layer."""
        name = difference.finding.layer
        if name in {*self.explained, *self.failed} or self.remaining_searches == 0:
            return None
        try:
            with self._in_time():
                return self._explain(difference, args)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            # What was judged stays, although a layer does not compute in the form that the search for a cause expects.
            traceback.print_exc()
            self.failed[name] = f"{type(error).__name__}: {first_line(error)}"
            return None

    def _explain(self, difference: Difference, args: Any) -> FusedLayer | None:
        name = difference.finding.layer
        layer, fused = self.models.layers[name], None
        explanation = self._fault(difference, args)
        if explanation is None and has_sums(layer):
            x = as_float64(flatten(args)[0])
            explanation = ROUNDED_SUMS if output_has_rounded_sums(layer, x, difference) else None
        if explanation is None:
            explanation, fused = self._before_activation(difference, args)
        if explanation is None:
            explanation = self.code.of_layer(difference, args)
        if explanation is None:
            self.remaining_searches -= 1
            explanation = describe(
                difference.captured,
                difference.floors.exact,
                lambda exact: fits(difference, exact) is not None,
                difference.axis,
            )
        self.note(name, explanation)
        return fused

    def _fault(self, difference: Difference, args: Any) -> Explanation | None:
        """The fault that explains the output; None when none does, or when several others do as well.

        Where another kind of fault fits nearly as well as the best one, both are named, and a rounding among them excuses nothing.
        """
        fitting = list(self._fitting_faults(difference, args))
        if not fitting:
            return None
        best, near = best_and_near(fitting)
        others = [fault for fault in near if fault.kind != best.kind]
        rivals = self._that_compute_otherwise(others, best, difference, args)
        if len({fault.kind for fault in rivals}) > 1:
            return None
        self.likely_kind = best.kind
        says = best.says + (f", or {rivals[0].says}: these inputs cannot tell which" if rivals else "")
        rounding = best.rounding and all(fault.rounding for fault in rivals)
        return Explanation(best.kind, says, rounding, mistake=not (best.rounding or rivals))

    def _fitting_faults(self, difference: Difference, args: Any) -> Iterator[tuple[PortFault, float]]:
        """The faults that bring the output under the limits, and fit far better than none, each with R of the output."""
        faults = list(catalogue.explanatory_faults(self.models.layers[difference.finding.layer]))
        if self.likely_kind is not None:  # other layers of a port mostly have the fault of the first one
            faults.sort(key=lambda fault: fault.kind != self.likely_kind)
        for fault in faults:
            finding = self._judged(fault, difference, args)
            if finding is None or not is_far_better(finding, difference):
                continue
            yield fault, finding.ratio
            if fault.kind == self.likely_kind and finding.ratio < 1.0:
                return

    def _that_compute_otherwise(
        self, faults: Sequence[PortFault], best: PortFault, difference: Difference, args: Any
    ) -> list[PortFault]:
        """The faults whose result is not that of the best one to the last bit: several faults may be one and the same here."""
        layer = self.models.layers[difference.finding.layer]
        output = faulty_output(self.models, layer, best, args) if faults else None
        return [
            fault
            for fault in faults
            if output is None
            or (other := faulty_output(self.models, layer, fault, args)) is None
            or not torch.equal(output, other)
        ]

    def _judged(self, fault: PortFault, difference: Difference, args: Any) -> Finding | None:
        """The comparison of the output with that of a layer with this fault; None when the fault does not explain it."""
        layer, captured, floors = self.models.layers[difference.finding.layer], difference.captured, difference.floors
        output = faulty_output(self.models, layer, fault, args)
        if output is None:
            return None
        if output.shape != captured.shape:
            fitted = first_layout(captured, output.shape, layer, self.capture.channels_last)
            if fitted is None:
                return None
            captured = fitted
        worst_accepted = Verdict.EQUAL
        if output.shape != floors.exact.shape:  # the noise floor of another shape was not measured
            noise = known_noise(torch.full_like(output, limits.UNIT * rms(output)))
            floors, worst_accepted = Floors(output, None, None, noise=(noise, None)), Verdict.DRIFT
        changed = replace(difference, captured=captured, floors=floors, axis=channel_axis(layer, output.dim()))
        finding = changed.judge(output)
        if finding.verdict > worst_accepted and is_far_better(finding, difference):
            own = faulty_floors(self.models, difference.finding.layer, fault, args, output, changed.axis, floors.unit)
            finding = replace(changed, floors=own).judge(output)
        return finding if finding.verdict <= worst_accepted else None

    def _before_activation(
        self, difference: Difference, args: Any
    ) -> tuple[Explanation, FusedLayer] | tuple[None, None]:
        """The known fault of a layer that ends in an activation, and the call as that of such a layer; None when none fits."""
        layer, captured = self.models.layers[difference.finding.layer], difference.captured
        for fault in catalogue.explanatory_faults(layer) if may_be_fused(layer, captured) else ():
            output = None if fault.rounding else faulty_output(self.models, layer, fault, args)
            fused = self.fused.recognised(difference, output, args, fault.forward) if output is not None else None
            if fused is not None:
                self.likely_kind = fault.kind
                return Explanation(fault.kind, fault.says, fault.rounding), fused  # other faults were not tried
        return None, None
