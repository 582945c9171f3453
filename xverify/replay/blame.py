"""Where a difference comes from that no compared layer computes: glue code between two layers, or layers that never ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..float64.layer_kinds import may_overwrite, passes_through
from ..float64.source import Spot, lines_between
from ..float64.stepping import Models, Pause
from ..float64.structures import flatten
from ..results.verdicts import Verdict
from ..verdict.findings import OUTPUT, Finding
from .layout import layouts
from .tensors import Capture, Place, rms

SAME = 1e-5  # relative difference; far above rounding, and far below what a layer changes


@dataclass(frozen=True)
class _Skipped:
    """A call of a layer that was not captured. given: its first input in the reference; None where it has none in floats."""

    layer: str
    call: int
    given: Tensor | None


class Blame:
    """Follows a replay, and says for a difference at the input of a layer what lies before it.

    skipped: the calls that were not captured since the last input that was right.
    previous: the layer that was compared last, and the lines of the model's code that called it.
    """

    def __init__(self, models: Models, capture: Capture) -> None:
        self.models, self.capture = models, capture
        self.recorded = Counter(name for name, _ in capture.records)
        self.skipped: list[_Skipped] = []
        self.previous: tuple[str, Sequence[Spot]] = ("", ())

    def compared(self, pause: Pause) -> None:
        """Note that a layer was compared."""
        self.previous = (pause.layer, pause.spots)

    def skip(self, pause: Pause) -> None:
        """Note that a layer was not captured."""
        if (
            not self.capture.records
        ):  # nothing is compared, and the inputs of all layers would take the memory of a training step
            return
        given = next((tensor for tensor in flatten(pause.args) if tensor.is_floating_point()), None)
        if given is not None and may_overwrite(self.models.layers[pause.layer]):
            given = given.clone()
        self.skipped.append(_Skipped(pause.layer, pause.call, given))

    def right(self) -> None:
        """Note that what a layer was given is right, so everything before it is."""
        self.skipped.clear()

    def located(self, finding: Finding, pause: Pause) -> Finding:
        """A finding on glue code with the layer before it, and the lines of the reference between the calls of both layers."""
        if finding.verdict == Verdict.EQUAL:
            return finding
        after, spots = self.previous
        return replace(finding, after=after, source=lines_between(spots, pause.spots))

    def never_ran(self, given: Sequence[Tensor], layer: nn.Module | None) -> list[Finding]:
        """The finding that layers before a wrong input never ran; [] when all that were not captured may have run.

        A layer with weights that the framework knows and that was never called did not run. A layer without weights may be a
        function in the port; it did not run when the next layer was given what this one is given.

        given: the inputs that the framework gave the layer. layer: the layer; None for the outputs of the model.
        """
        for first, each in enumerate(self.skipped):
            if self._never_called(each) or self._passed_on(each, given, layer):
                unrun = (
                    other.layer
                    for other in self.skipped[first:]
                    if self.recorded[other.layer] <= other.call and not self._unknown(other.layer)
                )
                names = list(dict.fromkeys((each.layer, *unrun)))
                self.skipped.clear()
                others = f", and neither did the {len(names) - 1} after it, up to `{names[-1]}`" if names[2:] else ""
                others = f", and neither did `{names[1]}`" if len(names) == 2 else others
                again = f" for call {each.call + 1}" if each.call else ""
                place = Place(each.layer, each.call, 0, type(self.models.layers[each.layer]).__name__, OUTPUT)
                return [place.incomparable(f"did not run{again}{others}: the port never calls it")]
        return []

    def _has_weights(self, layer: str) -> bool:
        return any(True for _ in self.models.layers[layer].parameters())

    def _unknown(self, layer: str) -> bool:
        """Whether a layer may run without being seen: its weights are in another layer, or used by a function."""
        return self._has_weights(layer) and layer not in self.capture.watched

    def _never_called(self, each: _Skipped) -> bool:
        watched = self._has_weights(each.layer) and not self._unknown(each.layer)
        return watched and self.recorded[each.layer] <= each.call

    def _passed_on(self, each: _Skipped, given: Sequence[Tensor], layer: nn.Module | None) -> bool:
        """Whether the next layer was given what this layer is given."""
        if each.given is None or passes_through(self.models.layers[each.layer]):
            return False
        exact = each.given
        for tensor in given:
            for turned in layouts(tensor, exact.shape, layer, self.capture.channels_last):
                if float(torch.dist(turned.double(), exact)) <= SAME * rms(exact) * exact.numel() ** 0.5:
                    return True
        return False
