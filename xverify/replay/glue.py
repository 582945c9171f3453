"""Records and judges the glue code of the reference in the exact pass of a replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.arithmetic import float64_arithmetic
from ..float64.perturbation import DECISIONS, MARGIN, Noise
from ..float64.stepping import Models, Pause
from ..verdict.findings import Finding
from .causes import Causes
from .difference import Difference
from .floors import MORE_SAMPLES
from .tape import Arithmetic, Idle, Tape
from .tensors import Floors, Place, judge


class GlueCode:
    """The glue code of the exact pass.

    causes: explains what the port's glue code computes otherwise.
    recorded: whether to record the operations, without which nothing is explained.
    """

    def __init__(self, models: Models, tape: Tape, causes: Causes, recorded: bool) -> None:
        self.models, self.tape, self.causes, self.recorded = models, tape, causes, recorded

    def arithmetic(self) -> AbstractContextManager[Any]:
        """The arithmetic of the exact pass."""
        return self.tape.recording() if self.recorded else float64_arithmetic()

    def beside(self, arithmetic: Arithmetic = nullcontext) -> Arithmetic:
        """The arithmetic of a pass beside the exact one."""

        @contextmanager
        def both() -> Iterator[None]:
            with arithmetic(), Idle():
                yield

        return both if self.recorded else arithmetic

    def computed(self, layer: nn.Module, pause: Pause) -> Any:
        """What a layer that was not captured returns in the exact pass."""
        with self.tape.recording_layer(pause.spots) if self.recorded else nullcontext():
            return self.models.compute(layer, pause.args)

    def settle(self, exact: Tensor) -> None:
        """Note that what the glue code computed is what the port's computed."""
        self.tape.settle(exact)

    def judged(self, place: Place, captured: Tensor, floors: Floors, axis: int) -> Finding:
        """Compare what the port's glue code computes, and explain it where it is wrong.

        floors: of what the reference's glue code computes. axis: axis of the channels.
        """
        again = partial(self._more_samples, floors, axis) if self.recorded else None
        floors = replace(floors, undecided=partial(self._undecided, floors.exact), again=again)
        finding = judge(place, captured, floors, 1, axis)
        difference = Difference(finding, captured, floors, axis, finding.terms)
        if difference.equal:
            self.settle(floors.exact)
        return self.causes.of_glue(difference) if self.recorded and not difference.equal else finding

    def _more_samples(self, floors: Floors, axis: int) -> Floors:
        """The floors by MORE_SAMPLES perturbed computations of the glue code; as they are where it cannot be computed again."""
        exact, operations = floors.exact, self.tape.behind(floors.exact)
        squares = torch.zeros_like(exact, dtype=torch.float64)
        for index in range(MORE_SAMPLES):
            noise = Noise(self.models.seed + 1 + index, self.models.precision.unit)
            value = self.tape.perturbed(exact, operations, noise, partial(self.models.perturbed_code, noise))
            if value is None or value.shape != exact.shape:
                return floors
            squares += (value - exact).square() / MORE_SAMPLES
        return floors.sampled(squares, axis)

    def _undecided(self, exact: Tensor) -> Tensor:
        """Which whole numbers change when the operations of the glue code round MARGIN times as much."""
        found, operations = torch.zeros_like(exact, dtype=torch.bool), self.tape.behind(exact)
        for index in range(DECISIONS):
            noise = Noise(self.models.seed + index, MARGIN * self.models.precision.unit)
            value = self.tape.perturbed(exact, operations, noise, partial(self.models.perturbed_code, noise))
            if value is not None and value.shape == exact.shape:
                found |= value != exact
        return found
