"""Judges what a framework gave its layers, against what the reference's glue code computes from earlier captured outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor, nn

from ..float64.layer_kinds import channel_axis
from ..float64.stepping import Models, Pause
from ..float64.structures import as_float64, flatten
from ..results.verdicts import Verdict
from ..verdict.findings import INPUT, Finding
from ..verdict.limits import UNIT
from .blame import Blame
from .glue import GlueCode
from .layout import Axes, nearest
from .padding import padded_image, unpadded_image
from .passed_on import PassedOn
from .positions import UsedPositions
from .tensors import Capture, Floors, Place, equal, same_in_float64


class NeedsFloor(Exception):
    """Glue code does not agree to the last bit, and a single pass cannot tell how much of the difference is rounding."""


def glue_floors(values: Sequence[Tensor], axis: int, unit: float = UNIT) -> Floors:
    """The floor of what glue code computes, from its results in all passes. Raises NeedsFloor when there is one pass only."""
    if len(values) == 1:
        raise NeedsFloor
    exact, perturbed, float32 = values
    return Floors.between(exact, perturbed, float32, axis, unit)


@dataclass
class Given:
    """What a framework gave one call of a layer.

    inputs: in the reference's layout and float64. An input that was not captured, or that has another shape, is the reference's
        own; the layer is then judged together with the glue code before it.
    matched: how many of them were captured.
    unpadded: whether the inputs contain a padding that is not the reference's, so that the layer is judged without its own.
    joined: why the glue code before the layer is judged together with it; "" when every input was compared.
    findings: one finding for each input that was compared.
    files: all captured inputs.
    wrong: for each wrong input, what was captured and what the reference's glue code computes.
    """

    inputs: list[Tensor] = field(default_factory=list)
    matched: int = 0
    unpadded: bool = False
    joined: str = ""
    findings: list[Finding] = field(default_factory=list)
    files: Sequence[str] = ()
    wrong: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class InputJudge:
    """Judges the inputs of the layers of one capture.

    passed_on: the captured outputs that the exact pass was given.
    used: tells which positions of a convolution's output the reference uses.
    axes: in which order the axes of captured tensors may be.
    """

    def __init__(
        self,
        models: Models,
        capture: Capture,
        blame: Blame,
        glue: GlueCode,
        passed_on: PassedOn,
        used: UsedPositions,
        axes: Axes,
    ) -> None:
        self.models, self.capture, self.blame, self.glue, self.passed_on = models, capture, blame, glue, passed_on
        self.used, self.axes = used, axes

    def judge(self, pauses: list[Pause], files: Sequence[str]) -> Given:
        """Judge the inputs of one call. files: the captured inputs. Where one is wrong, the first finding says what never ran."""
        name, call = pauses[0].layer, pauses[0].call
        layer = self.models.layers[name]
        values_of = list(zip(*(flatten(pause.args) for pause in pauses)))
        unchanged = self.passed_on.among([values[0] for values in values_of], files)
        others = list(files)
        for file in unchanged.values():
            others.remove(file)
        captured = self.capture.load_all(others)
        given = Given(files=files)
        for index, values in enumerate(values_of):
            place = Place(name, call, index, type(layer).__name__, INPUT)
            if index in unchanged:
                given.matched += 1
                given.findings.append(self._identical(place, values[0]))
                given.inputs.append(values[0])
                continue
            used = self._judge_one(place, values, captured, layer, given)
            captured = [other for other in captured if other is not used]
        given.findings = [self.blame.located(finding, pauses[0]) for finding in given.findings]
        if any(finding.verdict != Verdict.EQUAL for finding in given.findings):
            given.findings = [*self.blame.never_ran(self.capture.load_all(files), layer), *given.findings]
        elif given.matched and not given.joined:
            self.blame.right()
        return given

    def _judge_one(
        self, place: Place, values: Sequence[Tensor], captured: Sequence[Tensor], layer: nn.Module, given: Given
    ) -> Tensor | None:
        """Judge one input, and add it to what was given. Returns the captured tensor that it was compared with.

        values: what the glue code of each pass computed. captured: the captured inputs that belong to no other input.
        """
        exact = values[0]
        same_kind = [tensor for tensor in captured if tensor.is_floating_point() == exact.is_floating_point()]
        search = (same_kind, exact, layer, self.capture.channels_last)
        fitting = nearest(*search, self.axes) or unpadded_image(*search)
        if fitting is not None:
            same = same_in_float64(exact, fitting[1])  # then no copy is made
            if not same and _makes_indices(layer):
                given.inputs.append(exact)
                given.joined = (
                    given.joined
                    or "the reference's layer makes the indices, so the glue code before it is judged with it"
                )
                return fitting[0]
            given.matched += 1
            given.findings.append(
                self._identical(place, exact)
                if same
                else self.judge_one(place, fitting[1], values, channel_axis(layer, exact.dim()))
            )
            if given.findings[-1].verdict != Verdict.EQUAL:
                given.wrong.append((fitting[1], exact))
            given.inputs.append(exact if same else as_float64(fitting[1]))
            return fitting[0]
        only = partial(self.used.only, place.layer, place.call)
        padded = padded_image(*search, only)
        if padded is None:
            given.inputs.append(exact)
            given.joined = given.joined or _why_joined(same_kind, exact)
            return None
        given.matched += 1
        finding = self.judge_one(place, padded.inside, values, channel_axis(layer, exact.dim()))
        if padded.problem and finding.verdict == Verdict.EQUAL:
            finding = place.incomparable(padded.problem)
        given.findings.append(finding)
        if finding.verdict != Verdict.EQUAL:
            given.wrong.append((padded.inside, exact))
        given.unpadded = given.unpadded or bool(padded.problem)
        same = not padded.problem and same_in_float64(exact, padded.inside)
        given.inputs.append(exact if same else as_float64(padded.whole if padded.problem else padded.inside))
        return padded.captured

    def judge_one(self, place: Place, captured: Tensor, values: Sequence[Tensor], axis: int) -> Finding:
        """Judge what glue code computes. values: the results of each pass. axis: axis of the channels."""
        exact = values[0]
        if equal(exact, captured):
            return self._identical(place, exact)
        floors = glue_floors(values, axis, self.models.precision.unit)
        return self.glue.judged(place, captured, floors, axis)

    def _identical(self, place: Place, exact: Tensor) -> Finding:
        self.glue.settle(exact)
        return place.identical()


def _makes_indices(layer: nn.Module) -> bool:
    """Whether an embedding computes what it looks up, such as the positions of tokens. A graph has the lookup alone."""
    return isinstance(layer, nn.Embedding) and type(layer).forward is not nn.Embedding.forward


def _why_joined(captured: Sequence[Tensor], exact: Tensor) -> str:
    if not captured:
        return "what the port gives it was not captured, so the glue code before it is judged with it"
    shapes = " and ".join(str(tuple(tensor.shape)) for tensor in captured)
    return (
        f"the port gives it {shapes}, the reference {tuple(exact.shape)}, so the glue code before it is judged with it"
    )
