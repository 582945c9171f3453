"""Replays the forward pass of a port in float64, and checks that every layer computed correctly from its own inputs.

The reference model runs on the tensors that another framework captured. Each layer gets the captured inputs, its output is compared
with the captured output, and the captured output is passed on. One pass therefore judges every layer independently of earlier
layers. The pass also judges the glue code: everything that the reference computes outside of its layers, such as additions,
reshapes and products. From the captured outputs, the glue code must compute the inputs that the next layer was given.

The noise floor of a layer is measured on its inputs (see ``floors``). Glue code mostly agrees to the last bit and needs no floor.
Where it does not, three passes run side by side, one layer at a time: exact, perturbed, and in float32. A layer that was not
captured is computed by each pass itself, as part of the glue code. A replay of an empty capture therefore gives the float64 outputs
and the noise floor of the whole model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.layer_kinds import channel_axis, judged_terms, may_overwrite, passive_layers, summed_terms
from ..float64.perturbed_passes import perturbed_output
from ..float64.stepping import Models, Pause, SteppingPass
from ..float64.structures import as_float32, as_float64, flatten, map_tensors, substitute, unflatten
from ..framework.capture import LayerCall
from ..results.verdicts import Verdict
from ..verdict.findings import INPUT, OUTPUT, Finding, ReplayReport
from ..weights.canonical import Array
from . import fused_steps
from .call_order import CallMatcher, count_calls, in_reference_order
from .explain.blame import Blame
from .explain.explained_roundings import with_rounding
from .explain.explanation import Explainer
from .first_positions import compare_first
from .floors import MEASURED_CALLS, FloorMeter
from .fused import FusedLayer, FusedLayers
from .inputs import Given, InputJudge, NeedsFloor, glue_floors
from .joined import joined_findings
from .layout import nearest
from .padding import cropped_image, without_padding
from .passed_on import PassedOn
from .tensors import Capture, Floors, Place, equal, judge

MODEL_OUTPUT = "(output)"  # in the place of a layer's name

Visit = Callable[[str, Any], None]
Fed = Sequence[Mapping[int, Tensor]]
NOT_FED: Fed = ({}, {}, {})  # nothing is replaced, in any of the three passes


def replay_forward(
    models: Models,
    capture: Capture,
    inputs: Sequence[Tensor],
    outputs: Mapping[str, Array | None],
    planted: tuple[str, int] | None = None,
) -> ReplayReport:
    """Replay a capture in one pass, or in three passes where one is not enough.

    inputs: the inputs of the captured pass.
    outputs: what the framework returned, by name; None where an output is missing.
    planted: a fault that the capture is known to have, as (layer, index in ``catalogue.plantable_faults``).
    """
    return replayed(models, capture, inputs, outputs, planted).report()


def replayed(
    models: Models,
    capture: Capture,
    inputs: Sequence[Tensor],
    outputs: Mapping[str, Array | None],
    planted: tuple[str, int] | None = None,
) -> Replay:
    """The finished replay; the arguments are those of ``replay_forward``."""
    # suppress drops the exception, which would keep the first replay's tensors in memory during the second replay.
    with suppress(NeedsFloor):
        return _finished(Replay(models, capture, planted, single_pass=True), inputs, outputs)
    return _finished(Replay(models, capture, planted), inputs, outputs)


def _finished(replay: Replay, inputs: Sequence[Tensor], outputs: Mapping[str, Array | None]) -> Replay:
    replay.judge_outputs(outputs, replay.run(inputs))
    return replay


@dataclass(frozen=True)
class Compared:
    """A captured call of a layer that was compared.

    result: the exact result of the reference's layer. floors: of its outputs. outputs: the captured ones.
    files: of the outputs; "" where an output is a part of what was captured.
    overwritten: which arguments the layer overwrites.
    findings: the comparisons of the outputs.
    fused: the call as one of a layer that ends in an activation; None when it does not.
    """

    result: Any
    floors: Sequence[Floors]
    outputs: list[Tensor]
    files: list[str]
    overwritten: list[bool]
    findings: list[Finding]
    fused: FusedLayer | None


class Replay:
    """One replay of one capture.

    findings: all comparisons, in the order of computation.
    compared, missing: layer -> number of its calls that were captured, and that were not.
    returned_inputs: layer without captures -> whether every call returned its input as it is.
    planted: see ``replay_forward``.
    visible: size of the change that the planted fault makes to the exact output of its layer, in noise floors. A mutation does not
        expect a fault to be found that no test could see.
    first_positions: convolution of which the port returns the first positions only -> a sentence that says so.
    returned: the outputs of the model in each pass, when the replay ran to its end.
    single_pass: whether to omit the perturbed and the float32 pass. NeedsFloor is raised where they are needed.
    """

    def __init__(
        self, models: Models, capture: Capture, planted: tuple[str, int] | None = None, single_pass: bool = False
    ) -> None:
        self.models, self.capture, self.planted, self.single_pass = models, capture, planted, single_pass
        self.noise = models.noise()
        self.meter = FloorMeter(models, self.noise)
        self.fused = FusedLayers(models, self.noise)
        self.explainer = Explainer(models, capture, self.fused)
        self.passed_on = PassedOn()
        self.calls = CallMatcher(capture, lambda: count_calls(models, self.inputs), self.passed_on)
        self.blame = Blame(models, capture)
        self.blame.glue.enabled = not single_pass and bool(capture.records)
        self.input_judge = InputJudge(models, capture, self.blame, self.passed_on)
        self.findings: list[Finding] = []
        self.compared: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()
        self.returned_inputs: dict[str, bool] = {}
        self.visible = 0.0
        self.first_positions: dict[str, str] = {}
        self.stopped = ""
        self.passes: list[SteppingPass] = []
        self.visit: Visit | None = None
        self.inputs: Sequence[Tensor] = ()
        self.returned: list[list[Tensor]] = []

    def run(self, inputs: Sequence[Tensor], visit: Visit | None = None, fed: Fed = NOT_FED) -> list[Floors]:
        """Replay on these inputs. Returns the exact outputs of the model with their floors; [] when the replay had to stop.

        visit: called with (layer, arguments in float64) at the first calls of each layer that was not captured.
        fed: for each pass, index of an input -> the tensor that this pass is given in its place.
        """
        self.visit, self.inputs = visit, inputs
        float64_inputs = substitute(map(as_float64, inputs), fed[0])
        self.meter.items = float64_inputs[0].shape[0] if float64_inputs and float64_inputs[0].dim() else 0
        draws = self.models.draws
        self.passes = [SteppingPass(self.models.float64_model, float64_inputs, self.blame.glue.arithmetic, draws)]
        if not self.single_pass:
            perturbed_inputs = substitute(map(self.noise.given, map(as_float64, inputs)), fed[1])
            rounding = self.blame.glue.beside(partial(self.models.perturbed_code, self.noise))
            self.passes += [
                SteppingPass(self.models.float64_model, perturbed_inputs, rounding, draws),
                SteppingPass(
                    self.models.float32_model,
                    substitute(map(as_float32, inputs), fed[2]),
                    self.blame.glue.beside(),
                    draws,
                ),
            ]
        with torch.no_grad():
            return self._step_to_end()

    def judge_outputs(self, outputs: Mapping[str, Array | None], exact: Sequence[Floors]) -> None:
        """Compare the framework's outputs with those that the reference's glue code computes from the last captured outputs.

        exact: what ``run`` returned.
        """
        for index, ((name, array), floors) in enumerate(zip(outputs.items(), exact)):
            if array is None or array.shape != tuple(floors.exact.shape):
                continue
            returned = torch.from_numpy(array)
            if self.single_pass and not equal(floors.exact, returned):
                raise NeedsFloor
            place = Place(f"{MODEL_OUTPUT} {name}", 0, index, "", INPUT)
            finding = self.blame.glue.judged(place, returned, floors, max(0, returned.dim() - 1))
            if finding.verdict != Verdict.EQUAL:
                self.findings += self.blame.never_ran([returned], None)
            fused_steps.add_passed_on(self, self.blame.located(finding, Pause("", 0, ())), returned, floors.exact)

    def report(self) -> ReplayReport:
        """The report on all findings."""
        return ReplayReport(
            tuple(self.findings),
            dict(self.compared),
            dict(self.missing),
            dict(self.explainer.explained),
            self.visible,
            self.stopped,
            (*self.fused.notes(), *self.first_positions.values(), *self.calls.notes(), *self.explainer.notes()),
            passive_layers(self.models.layers, self.returned_inputs, self.compared),
        )

    def capture_in_order(self) -> Capture:
        """The capture with its calls numbered as in the reference, without the layers that end in an activation."""
        return in_reference_order(self.capture, self.calls, frozenset(self.fused.activations))

    def _step_to_end(self) -> list[Floors]:
        """Let all passes compute layer by layer, until the model returns or the replay has to stop."""
        answers: list[Any] | None = [None] * len(self.passes)
        while answers is not None:
            pauses: list[Pause] = [each.switch(answer) for each, answer in zip(self.passes, answers)]
            if self._has_to_stop(pauses):
                return []
            if not pauses[0].layer:
                return self._output_floors([pause.args for pause in pauses])
            answers = self._step(pauses)
        return []

    def _has_to_stop(self, pauses: list[Pause]) -> bool:
        """Whether the passes cannot continue side by side. Raises an error of the reference that no finding explains."""
        first = pauses[0]
        for pause in pauses:
            if pause.error is not None:
                # After a tensor of another shape the reference's own code may fail.
                if not any(finding.reason for finding in self.findings):
                    raise pause.error
                return True
        if any((pause.layer, pause.call) != (first.layer, first.call) for pause in pauses):
            self.stopped = f"rounding alone changes what is computed after {first.layer or MODEL_OUTPUT}"
            return True
        return False

    def _step(self, pauses: list[Pause]) -> list[Any] | None:
        """The output of the layer for each pass; None when the replay has to stop."""
        first = pauses[0]
        fused = self.fused.given_to(first)
        if fused is not None:
            return fused_steps.step_activation(self, pauses, fused)
        files = self.calls.take(first.layer, first.call, first.args, self.models.layers[first.layer])
        if files is None or not files.outputs:  # without outputs, the framework failed within this layer
            return self._step_by_itself(pauses)
        return self._step_captured(pauses, files)

    def _output_floors(self, outputs: list[Any]) -> list[Floors]:
        """The model's outputs with their floors; a single pass measures none."""
        if self.single_pass:
            return [Floors(output, None, None) for output in self.models.in_order(outputs[0])]
        self.returned = [self.models.in_order(each) for each in outputs]
        unit = self.models.precision.unit
        return [glue_floors(each, each[0].dim() - 1, unit) for each in zip(*self.returned)]

    def need_all_passes(self) -> None:
        """Raise NeedsFloor in a single pass."""
        if self.single_pass:
            raise NeedsFloor

    # -- a layer that was not captured --------------------------------------------------------------------------------

    def _step_by_itself(self, pauses: list[Pause]) -> list[Any]:
        """Each pass computes the layer itself, because it was not captured."""
        name = pauses[0].layer
        self.missing[name] += 1
        self.blame.skip(pauses[0])
        outputs = self.compute_in_each_pass(pauses)
        returned = any(outputs[0] is given for given in pauses[0].args[0])
        self.returned_inputs[name] = returned and self.returned_inputs.get(name, True)
        return outputs

    def compute_in_each_pass(self, pauses: list[Pause]) -> list[Any]:
        """What the reference's layer returns in each pass."""
        name = pauses[0].layer
        layer = self.models.layers[name]
        # The length of the sums depends on the inputs, which an in-place layer overwrites.
        size = self.noise.rounding(summed_terms(layer, flatten(pauses[0].args)))
        if self.visit is not None and pauses[0].call < MEASURED_CALLS:
            self.visit(name, map_tensors(pauses[0].args, Tensor.clone))
        exact = self.blame.glue.computed(layer, pauses[0])
        if self.single_pass:
            return [exact]
        perturbed = perturbed_output(self.models, self.noise, layer, pauses[1].args, size)
        return [exact, perturbed, self.models.compute(self.models.float32_layers[name], pauses[2].args)]

    # -- a captured layer ---------------------------------------------------------------------------------------------

    def _step_captured(self, pauses: list[Pause], files: LayerCall) -> list[Any] | None:
        """Judge the inputs and outputs of a layer. Returns its output for each pass; None when the replay has to stop."""
        name = pauses[0].layer
        layer = self.models.layers[name]
        given = self.input_judge.judge(pauses, files.inputs)
        self.findings += given.findings
        for captured, exact in given.wrong:
            fused_steps.explain_passed_on(self, name, captured, exact)
        with without_padding(layer, self.models.float32_layers[name]) if given.unpadded else nullcontext():
            found = self.compare_outputs(pauses[0], files, given)
        if found is None:
            if not given.matched:
                # The layer works in another layout: it is judged as part of the glue code.
                return self._step_by_itself(pauses)
            return None
        self.compared[name] += 1
        if found.fused is not None:
            self.blame.compared(pauses[0])
            return fused_steps.step_fused(self, found.fused, found.findings, found.outputs, found.floors)
        whole = (found.findings, found.outputs, found.floors, pauses[0], given)
        self.findings += joined_findings(self, *whole) if given.joined else found.findings
        self.blame.compared(pauses[0])
        outputs = [*found.outputs, *(each.exact for each in found.floors[len(found.outputs) :])]
        answers = self.answers(outputs)
        for tensor, file in zip(answers[0], found.files):
            if file:
                self.passed_on.note(tensor, file)
        for pause, answer in zip(pauses, answers):
            for tensor, changed in zip(flatten(pause.args), found.overwritten):
                if changed:  # all code that uses the input of an in-place layer sees its output
                    tensor.copy_(answer[0])
        return [unflatten(found.result, answer) for answer in answers]

    def compare_outputs(self, pause: Pause, files: LayerCall, given: Given) -> Compared | None:
        """Judge what a layer computes from what it was given; None when its captured outputs fit none of the reference."""
        name = pause.layer
        layer = self.models.layers[name]
        args = unflatten(pause.args, given.inputs)
        result, overwritten = self._compute(layer, args)
        floors = self.meter.measure(name, args, flatten(result))
        matched = self._match_outputs(files.outputs, floors, layer)
        outputs = [output for output, _ in matched]
        if floors and not outputs:
            first = compare_first(self, pause, files, given, args, result)
            if first is not None:
                return first
        if self.planted is not None and self.planted[0] == name:
            self.visible = max(self.visible, self.explainer.visibility(layer, self.planted[1], args, floors[0]))
        if floors and not outputs:
            if given.matched:
                self.compared[name] += 1
                self._report_shape(pause, self.capture.load(files.outputs[0]), floors[0], args)
            return None
        findings = self._judge_outputs(pause, outputs, floors, args)
        fused = fused_steps.fused_layer(self, findings, outputs, floors, args)
        known = self.explainer.explained.get(name)
        findings = [
            finding
            if finding.verdict == Verdict.EQUAL
            else with_rounding(self.models, known, finding, output, each, args)
            for finding, output, each in zip(findings, outputs, floors)
        ]
        return Compared(result, floors, outputs, [file for _, file in matched], overwritten, findings, fused)

    def _compute(self, layer: nn.Module, args: Any) -> tuple[Any, list[bool]]:
        """The exact output of a layer, and which of its arguments it overwrites; the given arguments stay as they are."""
        copies = map_tensors(args, Tensor.clone) if may_overwrite(layer) else args
        versions = [tensor._version for tensor in flatten(copies)]
        result = self.models.compute(layer, copies)
        return result, [tensor._version != version for tensor, version in zip(flatten(copies), versions)]

    def _match_outputs(
        self, files: Sequence[str], floors: Sequence[Floors], layer: nn.Module
    ) -> list[tuple[Tensor, str]]:
        """The captured outputs in the order and layout of the reference's, up to the first that was not captured.

        Each comes with its file; "" where it is a part of what was captured.

        The reference may return a state that the framework does not return.
        """
        captured = list(zip(self.capture.load_all(files), files))
        outputs: list[tuple[Tensor, str]] = []
        for each in floors[: len(captured)]:
            place = ([tensor for tensor, _ in captured], each.exact, layer, self.capture.channels_last)
            whole = nearest(*place)
            found = whole or cropped_image(*place)
            if found is None:
                break
            file = next(file for tensor, file in captured if tensor is found[0])
            captured = [other for other in captured if other[0] is not found[0]]
            outputs.append((found[1], file if whole else ""))
        return outputs

    def _judge_outputs(self, pause: Pause, outputs: list[Tensor], floors: Sequence[Floors], args: Any) -> list[Finding]:
        """Judge every captured output."""
        layer = self.models.layers[pause.layer]
        terms, kind = judged_terms(layer, flatten(args)), type(layer).__name__
        return [
            judge(
                Place(pause.layer, pause.call, index, kind, OUTPUT),
                output,
                each,
                terms,
                channel_axis(layer, output.dim()),
            )
            for index, (output, each) in enumerate(zip(outputs, floors))
        ]

    def _report_shape(self, pause: Pause, captured: Tensor, floors: Floors, args: Any) -> None:
        """Report and explain an output of another shape. The replay cannot continue after it."""
        kind = type(self.models.layers[pause.layer]).__name__
        reason = f"output has shape {tuple(captured.shape)}, the reference {tuple(floors.exact.shape)}"
        self.findings.append(Place(pause.layer, pause.call, 0, kind, OUTPUT).incomparable(reason))
        self.explainer.explain(self.findings[-1], captured, floors, args)

    def answers(self, outputs: list[Tensor]) -> list[list[Tensor]]:
        """The outputs of a captured layer in the arithmetic of each pass: exact, perturbed, float32."""
        answers = [[as_float64(tensor) for tensor in outputs]]
        if not self.single_pass:
            perturbed = [
                self.noise.given_(tensor.to(torch.float64, copy=True) if tensor.is_floating_point() else tensor)
                for tensor in outputs
            ]
            answers += [perturbed, [as_float32(tensor) for tensor in outputs]]
        return answers
