"""Judges what the layers of a framework return, against what the reference's layers return for the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ..float64.layer_kinds import channel_axis, judged_terms, may_overwrite
from ..float64.stepping import Models, Pause
from ..float64.structures import flatten, map_tensors, unflatten
from ..framework.capture import LayerCall
from ..verdict.findings import OUTPUT, Finding
from .causes import Causes
from .difference import Difference
from .floors import FloorMeter
from .fused import FusedLayer, FusedLayers, fused_activations
from .inputs import Given
from .layout import Axes, distance, fitting
from .padding import cropped_image
from .positions import NEAR, Part, UsedPositions, only_part, part_of
from .tensors import Capture, Floors, Place, judge


@dataclass(frozen=True)
class Compared:
    """A captured call of a layer that was compared.

    result: the exact result of the reference's layer. floors: of its outputs.
    differences: the comparisons of the captured outputs. findings: their findings, or the one on an output of another shape.
    files: of all outputs; "" where an output is a part of what was captured, has its axes in another order, or was not captured.
    overwritten: which arguments the layer overwrites.
    fused: the call as one of a layer that ends in an activation; None when it does not.
    unreduced: whether the port reduces the outputs behind its layer, so that each pass computes the layer itself.
    """

    result: Any
    floors: Sequence[Floors]
    differences: list[Difference]
    findings: list[Finding]
    files: list[str]
    overwritten: list[bool]
    fused: FusedLayer | None = None
    unreduced: bool = False

    @property
    def of_another_shape(self) -> bool:
        """Whether the captured outputs fit none of the reference."""
        return bool(self.floors) and not self.differences

    def completed(self, first: Tensor | None = None) -> list[Tensor]:
        """The captured outputs, and the exact ones of those that were not captured. first: in the place of the first one."""
        captured = {each.finding.index: each.captured for each in self.differences}
        found = [captured.get(index, each.exact) for index, each in enumerate(self.floors)]
        return found if first is None else [first, *found[1:]]


class OutputJudge:
    """Judges the outputs of the layers of one capture.

    used: tells which positions the reference uses. axes: in which order the axes of captured tensors may be.
    positions: convolution of which the port returns a part of the positions -> a sentence that says which.
    unreduced: layer whose rows the port reduces by itself -> a sentence that says so.
    """

    def __init__(
        self,
        models: Models,
        capture: Capture,
        meter: FloorMeter,
        fused: FusedLayers,
        causes: Causes,
        used: UsedPositions,
        axes: Axes,
    ) -> None:
        self.models, self.capture, self.meter, self.fused, self.causes = models, capture, meter, fused, causes
        self.used, self.axes = used, axes
        self.positions, self.unreduced = dict[str, str](), dict[str, str]()

    def judge(self, pause: Pause, files: LayerCall, given: Given) -> Compared | None:
        """Judge what a layer computes from what it was given.

        Returns None when neither its captured inputs nor its outputs fit those of the reference: it works in another layout.
        """
        layer, args = self.models.layers[pause.layer], unflatten(pause.args, given.inputs)
        result, overwritten = self._compute(layer, args)
        floors = self.meter.measure(pause.layer, args, flatten(result))
        matched = self._match(files.outputs, floors, layer)
        if floors and not matched:
            part = self._part_of_positions(pause, files, given, args, result)
            if part is not None:
                return part
            rows = self._rows(pause, files, args)
            if rows is not None:
                return rows
        self.causes.computed(pause.layer, args, floors)
        if floors and not matched:
            return self._other_shape(pause, files, floors, args) if given.matched else None
        differences = self._differences(pause, matched, floors, args)
        fused = None
        if differences and differences[0].finding.index == 0 and not differences[0].equal:
            first_output = differences[0]
            fused = self.fused.recognised(first_output, first_output.floors.exact, args)
            fused = fused or self.causes.of_layer(first_output, args)
        findings = [each.finding if each.equal else self.causes.rounded(each, args) for each in differences]
        files_of = [matched[index][1] if index in matched else "" for index in range(len(floors))]
        return Compared(result, floors, differences, findings, files_of, overwritten, fused)

    def _compute(self, layer: nn.Module, args: Any) -> tuple[Any, list[bool]]:
        """The exact output of a layer, and which of its arguments it overwrites; the given arguments stay as they are."""
        copies = map_tensors(args, Tensor.clone) if may_overwrite(layer) else args
        versions = [tensor._version for tensor in flatten(copies)]
        result = self.models.compute(layer, copies)
        return result, [tensor._version != version for tensor, version in zip(flatten(copies), versions)]

    def _match(self, files: Sequence[str], floors: Sequence[Floors], layer: nn.Module) -> dict[int, tuple[Tensor, str]]:
        """Index of an output of the reference -> the captured one in its layout, up to the first that was not captured.

        Each comes with its file; "" where it is a part of what was captured, or has its axes in another order there.

        The reference may return a state that the framework does not return, or nothing but the state is used of what a recurrent
        layer returns.
        """
        captured = list(zip(self.capture.load_all(files), files))
        outputs: dict[int, tuple[Tensor, str]] = {}
        for index, each in enumerate(floors):
            place = ([tensor for tensor, _ in captured], each.exact, layer, self.capture.channels_last)
            whole = fitting(*place, self.axes)
            match = cropped_image(*place) if whole is None else (captured[whole.which][0], whole.tensor)
            others = [other.exact for other in floors[index + 1 :] if other.exact.shape == each.exact.shape]
            if isinstance(layer, nn.RNNBase) and (match is None or _is_another(match[1], each.exact, others, captured)):
                continue
            if match is None:
                break
            file = next(file for tensor, file in captured if tensor is match[0])
            captured = [other for other in captured if other[0] is not match[0]]
            outputs[index] = (match[1], file if whole and not whole.moved else "")
        return outputs

    def _differences(
        self, pause: Pause, outputs: Mapping[int, tuple[Tensor, str]], floors: Sequence[Floors], args: Any
    ) -> list[Difference]:
        """Judge every captured output. outputs: see ``_match``."""
        layer = self.models.layers[pause.layer]
        terms, kind = judged_terms(layer, flatten(args)), type(layer).__name__
        found = []
        for index, (output, _) in outputs.items():
            place, axis = Place(pause.layer, pause.call, index, kind, OUTPUT), channel_axis(layer, output.dim())
            found.append(
                Difference(judge(place, output, floors[index], terms, axis), output, floors[index], axis, terms)
            )
        return found

    def _other_shape(self, pause: Pause, files: LayerCall, floors: Sequence[Floors], args: Any) -> Compared:
        """Report and explain an output of another shape."""
        layer, captured = self.models.layers[pause.layer], self.capture.load(files.outputs[0])
        reason = f"output has shape {tuple(captured.shape)}, the reference {tuple(floors[0].exact.shape)}"
        finding = Place(pause.layer, pause.call, 0, type(layer).__name__, OUTPUT).incomparable(reason)
        axis, terms = channel_axis(layer, captured.dim()), judged_terms(layer, flatten(args))
        self.causes.of_layer(Difference(finding, captured, floors[0], axis, terms), args)
        return Compared(None, floors, [], [finding], [], [])

    def _rows(self, pause: Pause, files: LayerCall, args: Any) -> Compared | None:
        """Compare the rows of a table that the port looks up, where the reference has a bag of them.

        The reference's own layer reduces them afterwards, as a part of the glue code. args: of the call, in float64.
        Returns None where the captured output has another shape than the rows.
        """
        layer, captured = self.models.layers[pause.layer], self.capture.load(files.outputs[0])
        if not isinstance(layer, nn.EmbeddingBag):
            return None
        rows = nn.functional.embedding(flatten(args)[0].long(), layer.weight)
        if captured.shape != rows.shape:
            return None
        place = Place(pause.layer, pause.call, 0, type(layer).__name__, OUTPUT)
        floors = Floors(rows, None, None, unit=self.models.precision.forward_unit(pause.layer))
        finding = judge(place, captured, floors, 1, rows.dim() - 1)
        self.unreduced[pause.layer] = (
            f"{pause.layer} was compared in the rows that it looks up, because the port reduces them in its own code"
        )
        return Compared(None, [], [], [finding], [], [], unreduced=True)

    def _part_of_positions(
        self, pause: Pause, files: LayerCall, given: Given, args: Any, result: Any
    ) -> Compared | None:
        """Compare some positions of a convolution's output with those that were captured.

        args: of the call, in float64. result: the exact output of the reference's layer.
        Returns None where the captured output has no such positions, as far as its shape and values tell.
        """
        name, exact = pause.layer, flatten(result)[0]
        part = self._part(pause, self.capture.load_all(files.outputs), exact)
        if part is None:
            return None
        with only_part(self.models, name, exact.shape, part):
            finding = self.judge(pause, files, given)
        if finding is None or not self._are_these(finding, name, given):
            return None
        self.positions[name] = part.in_words(name, exact.shape[2:])
        first, fused = finding.differences[0], finding.fused
        if fused is not None:
            fused = self._with_all_positions(fused, args, part)
        whole = replace(first, captured=part.filled(exact, first.captured))
        return replace(finding, result=result, differences=[whole], files=[""], fused=fused)

    def _part(self, pause: Pause, captured: Sequence[Tensor], exact: Tensor) -> Part | None:
        """The positions that a captured output has; those that are not the first ones are all that the reference uses."""
        layer = self.models.layers[pause.layer]
        activations = fused_activations(layer, exact.dim())
        part = part_of(captured, exact, layer, self.capture.channels_last, activations)
        if part is None or part.first or self.used.only(pause.layer, pause.call, part):
            return part
        return Part((0,) * len(part.sizes), part.sizes)

    def _are_these(self, found: Compared, name: str, given: Given) -> bool:
        """Whether the captured values are these positions: right ones, or wrong ones of a layer that fits otherwise."""
        if found.differences[0].equal or found.fused is not None:
            return True
        near = (found.findings[0].rel_rms or 1.0) < NEAR
        return not given.joined and (name in self.causes.explained or near)

    def _with_all_positions(self, fused: FusedLayer, args: Any, part: Part) -> FusedLayer:
        """A call of a layer that ends in an activation with all positions.

        args: of the call, in float64. part: the positions that were captured.
        """
        results = self.fused.in_each_pass(fused.layer, args, fused.forward)
        exact = flatten(results[0])[0]
        activation = fused_activations(self.models.layers[fused.layer], exact.dim())[fused.activation]
        return replace(fused, captured=part.filled(activation(exact), fused.captured), results=results)


def _is_another(
    output: Tensor, exact: Tensor, others: Sequence[Tensor], captured: Sequence[tuple[Tensor, str]]
) -> bool:
    """Whether an output is rather one of the others of its shape, of which fewer were captured than there are."""
    alike = sum(tensor.numel() == exact.numel() for tensor, _ in captured)
    return alike <= len(others) and any(distance(output, other) < distance(output, exact) for other in others)
