"""What a replay asks for the cause of a difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..float64.stepping import Models, Pause
from ..verdict.findings import Explanation, Finding
from .difference import Difference
from .fused import FusedLayer, FusedLayers
from .tape import Tape
from .tensors import Capture, Floors


class Causes:
    """The causes of the differences that a replay finds. This class finds none, ``explain.explanation.Explainer`` does.

    It returns what it finds, and changes nothing in the replay. Arguments of a call are in float64.

    fused: recognises layers that end in an activation.
    tape: the operations of the reference's glue code.
    explained: layer -> its explanation.
    visible: size of the change that a planted fault makes to the exact output of its layer, in noise floors.
    """

    def __init__(self, models: Models, capture: Capture, fused: FusedLayers, tape: Tape) -> None:
        self.models, self.capture, self.fused, self.tape = models, capture, fused, tape
        self.explained: dict[str, Explanation] = {}
        self.visible = 0.0

    def note(self, layer: str, explanation: Explanation | None) -> None:
        """Note the explanation of a layer, unless it has one."""
        if explanation is not None:
            self.explained.setdefault(layer, explanation)

    def computed(self, layer: str, args: Any, floors: Sequence[Floors]) -> None:
        """Note that a captured layer was computed. floors: of its outputs."""

    def compared(self, pause: Pause) -> None:
        """Note that a layer was compared."""

    def of_layer(self, difference: Difference, args: Any) -> FusedLayer | None:
        """Explain the first output of a layer; once for each layer.

        Returns the layer as one with a fault before an activation, where this explains the output; else None.
        """
        return None

    def rounded(self, difference: Difference, args: Any) -> Finding:
        """The finding on an output of a layer, with the rounding that reproduces this very output, when there is one."""
        return difference.finding

    def of_glue(self, difference: Difference) -> Finding:
        """The finding on what glue code computes, with what the port's glue code computes instead, where it is known."""
        return difference.finding

    def through_layer(self, difference: Difference, pause: Pause, args: Any) -> Finding:
        """The finding on an output of a layer that is judged together with the glue code before it, explained like glue code.

        args: the arguments of the layer; those that were not captured are the reference's own.
        """
        return difference.finding

    def notes(self) -> Iterable[str]:
        """One sentence for each layer whose cause could not be searched."""
        return ()
