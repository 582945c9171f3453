"""Finds where a reference computes something else in float32 than in float64, as code does that branches on the dtype.

The error of the reference's own float32 result is a part of every noise floor. Where it is not rounding, it would excuse any fault.
So would noise that grows too large, and the place where it does is found in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..float64.source import Spot, lines_between
from ..float64.stepping import Models, Pause
from ..float64.structures import flatten
from ..verdict.limits import CAP, EQUAL_C, UNIT
from .forward import NOT_FED, Fed, Replay
from .tensors import Capture, rms

EXPLAINED = 30.0  # rms of the float32 error / rms of the change under perturbation; coherent rounding comes to 20
STEEP = 30.0  # times the noise before, by which a single place makes it too large
SAMPLES = 8  # perturbations before an error is called no rounding; one of them may flip no decision that float32 flips


@dataclass(frozen=True)
class Inconsistency:
    """Where a reference first computes something else in float32 than in float64.

    output: the output of the model. share: rms of its float32 error / rms of its values. ratio: of the error to rounding.
    before, layer: the layers between whose calls the code is, or ("", layer) for the layer itself; "" for the ends of the model.
    within: whether the layer itself differs.
    """

    output: str
    share: float
    ratio: float
    before: str = ""
    layer: str = ""
    within: bool = False


def excess(exact: Tensor, perturbed: Sequence[Tensor], float32: Tensor) -> tuple[float, float]:
    """(rms of the float32 error / rms of the values, rms of this error / what rounding explains), over the finite values.

    Rounding explains the largest change under a perturbation, and one rounding of the value itself. Whole numbers have none.

    exact, perturbed, float32: the same tensor in the passes of a replay.
    """
    tensors = [exact, *perturbed, float32]
    if not exact.is_floating_point() or any(each.shape != exact.shape for each in tensors) or not exact.numel():
        return 0.0, 0.0
    values = [each.detach().double() for each in tensors]
    finite = torch.stack([torch.isfinite(each) for each in values]).all(0)
    y, *changed, own = (each[finite] for each in values)
    scale = float(y.abs().max()) if y.numel() else 0.0
    if not scale:
        return 0.0, 0.0
    size, error, *changes = (_rms(each / scale) for each in (y, own - y, *(each - y for each in changed)))
    rounding = math.hypot(max(changes, default=0.0), UNIT / math.sqrt(3) * size)
    return error / size, error / rounding


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def inconsistency(replay: Replay, names: Sequence[str], fed: Fed = NOT_FED) -> Inconsistency | None:
    """Where the float32 outputs of a finished replay of an empty capture are not its float64 outputs; None when they are.

    names: of the outputs. fed: what the passes of the replay were given in the place of inputs.
    """
    if not replay.returned:
        return None
    worst = _worst([replay.returned], names)
    if worst is None:
        return None
    others = [_Watched(replay.models, number + 1) for number in range(SAMPLES)]
    for each in others:
        each.run(replay.inputs, fed=fed)
    worst = _worst([replay.returned, *(each.returned for each in others if each.returned)], names)
    place = next((each.place for each in others if each.place), {})
    return None if worst is None else Inconsistency(*worst, **place)


def _worst(passes: Sequence[list[list[Tensor]]], names: Sequence[str]) -> tuple[str, float, float] | None:
    """The output whose float32 error is furthest from rounding, its share and its ratio; None when rounding explains all.

    passes: the outputs of the exact, the perturbed and the float32 pass of each replay.
    """
    found = []
    for index, name in enumerate(names):
        exact, own = passes[0][0][index], passes[0][2][index]
        found.append((name, *excess(exact, [each[1][index] for each in passes], own)))
    worst = max(found, key=lambda each: each[2])
    return worst if worst[2] > EXPLAINED else None


class _Watched(Replay):
    """A replay of an empty capture with other perturbations, which notes where the float32 pass leaves the exact one."""

    def __init__(self, models: Models, number: int) -> None:
        super().__init__(models, Capture(), sample=number)
        self.place: Mapping[str, Any] = {}
        self.last = ""

    def compute_in_each_pass(self, pauses: list[Pause]) -> list[Any]:
        name = pauses[0].layer
        self._look([pause.args for pause in pauses], {"before": self.last, "layer": name})
        outputs = super().compute_in_each_pass(pauses)
        self._look(outputs, {"layer": name, "within": True})
        self.last = name
        return outputs

    def _output_floors(self, outputs: list[Any]) -> Any:
        self._look(outputs, {"before": self.last})
        return super()._output_floors(outputs)

    def _look(self, values: Sequence[Any], place: Mapping[str, Any]) -> None:
        """Note the place when it is the first one. values: of the exact, the perturbed and the float32 pass."""
        if not self.place and any(
            excess(exact, [perturbed], own)[1] > EXPLAINED for exact, perturbed, own in zip(*map(flatten, values))
        ):
            self.place = place


@dataclass(frozen=True)
class Growth:
    """Where the noise of a reference grows most: to this share of the values, and before. The other fields are as above."""

    earlier: float
    share: float
    before: str = ""
    layer: str = ""
    within: bool = False
    source: str = ""


def growth(replay: Replay, fed: Fed = NOT_FED) -> Growth | None:
    """Where the noise grows in a finished replay of an empty capture whose outputs have too much of it; None for no place."""
    if not replay.returned or max(map(_share, *replay.returned[:2]), default=0.0) <= CAP / EQUAL_C:
        return None
    watched = _Growing(replay.models, Capture())
    watched.run(replay.inputs, fed=fed)
    return watched.found


def _share(exact: Tensor, perturbed: Tensor) -> float:
    """rms of the noise / rms of the values, or the share of whole numbers that rounding changes."""
    if exact.shape != perturbed.shape or not exact.numel():
        return 0.0
    if not exact.is_floating_point():
        return float((exact != perturbed).double().mean())
    size = rms(exact)
    return rms(perturbed - exact) / size if size else 0.0


class _Growing(Replay):
    """A replay of an empty capture that notes where the noise grows by the largest factor."""

    found: Growth | None = None
    largest, last = UNIT, ""
    spots: Sequence[Spot] = ()

    def compute_in_each_pass(self, pauses: list[Pause]) -> list[Any]:
        first = pauses[0]
        source = lines_between(self.spots, first.spots)
        self._look([pause.args for pause in pauses], Growth(0, 0, self.last, first.layer, source=source))
        outputs = super().compute_in_each_pass(pauses)
        self._look(outputs, Growth(0, 0, layer=first.layer, within=True))
        self.last, self.spots = first.layer, first.spots
        return outputs

    def _output_floors(self, outputs: list[Any]) -> Any:
        self._look(outputs, Growth(0, 0, self.last))
        return super()._output_floors(outputs)

    def _look(self, values: Sequence[Any], place: Growth) -> None:
        share = max(map(_share, *map(flatten, values[:2])), default=0.0)
        if share > STEEP * self.largest and (
            self.found is None or share / self.largest > self.found.share / self.found.earlier
        ):
            self.found = replace(place, earlier=self.largest, share=share)
        self.largest = max(self.largest, share)
