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
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..float64.layer_kinds import passive_layers, summed_terms
from ..float64.perturbed_passes import perturbed_output
from ..float64.stepping import Models, Pause, SteppingPass
from ..float64.structures import as_float32, as_float64, flatten, map_tensors, substitute, unflatten
from ..framework.capture import LayerCall
from ..results.verdicts import Verdict
from ..verdict.findings import INPUT, Finding, ReplayReport
from ..weights.canonical import Array
from .blame import Blame
from .call_order import CallMatcher, count_calls, in_reference_order
from .causes import Causes
from .floors import MEASURED_CALLS, FloorMeter
from .fused import FusedLayer, FusedLayers
from .glue import GlueCode
from .inputs import Given, InputJudge, NeedsFloor, glue_floors
from .layout import Axes
from .outputs import Compared, OutputJudge
from .padding import without_padding
from .passed_on import PassedOn
from .positions import UsedPositions
from .tape import Tape
from .tensors import Capture, Floors, Place, equal

MODEL_OUTPUT = "(output)"  # in the place of a layer's name

Visit = Callable[[str, Any], None]
Fed = Sequence[Mapping[int, Tensor]]
NOT_FED: Fed = ({}, {}, {})  # nothing is replaced, in any of the three passes
FindCauses = Callable[[Models, Capture, FusedLayers, Tape], Causes]  # Causes, or a class that is derived from it


def replayed(
    models: Models,
    capture: Capture,
    inputs: Sequence[Tensor],
    outputs: Mapping[str, Array | None],
    causes: FindCauses = Causes,
) -> Replay:
    """Replay a capture in one pass, or in three passes where one is not enough. Returns the finished replay.

    inputs: the inputs of the captured pass.
    outputs: what the framework returned, by name; None where an output is missing.
    causes: what explains the differences.
    """
    # suppress drops the exception, which would keep the first replay's tensors in memory during the second replay.
    with suppress(NeedsFloor):
        return _finished(Replay(models, capture, causes, single_pass=True), inputs, outputs)
    replay = _finished(Replay(models, capture, causes), inputs, outputs)
    if not (replay.axes.other_order and replay.failing):
        return replay
    # Where a port forgets to change the order of axes, reading them in that order would place the fault too late.
    strict = _finished(Replay(models, capture, causes, axes=Axes(any_order=False)), inputs, outputs)
    return strict if strict.returned and strict.failing <= replay.failing else replay


def _finished(replay: Replay, inputs: Sequence[Tensor], outputs: Mapping[str, Array | None]) -> Replay:
    replay.judge_outputs(outputs, replay.run(inputs))
    return replay


class Replay:
    """One replay of one capture.

    findings: all comparisons, in the order of computation.
    compared, missing: layer -> number of its calls that were captured, and that were not.
    returned_inputs: layer without captures -> whether every call returned its input as it is.
    returned: the outputs of the model in each pass, when the replay ran to its end.
    single_pass: whether to omit the perturbed and the float32 pass. NeedsFloor is raised where they are needed.
    sample: which perturbations the perturbed pass has.
    axes: in which order the axes of captured tensors may be.
    """

    def __init__(
        self,
        models: Models,
        capture: Capture,
        causes: FindCauses = Causes,
        single_pass: bool = False,
        sample: int = 0,
        axes: Axes | None = None,
    ) -> None:
        self.models, self.capture, self.single_pass = models, capture, single_pass
        self.axes = axes or Axes()
        self.noise, tape = models.noise(sample), Tape()
        self.meter = FloorMeter(models, self.noise)
        self.fused = FusedLayers(models, self.noise)
        self.causes = causes(models, capture, self.fused, tape)
        self.glue = GlueCode(models, tape, self.causes, recorded=not single_pass and bool(capture.records))
        self.passed_on = PassedOn()
        self.calls = CallMatcher(capture, lambda: count_calls(models, self.inputs), self.passed_on, self.axes)
        self.blame = Blame(models, capture)
        used = UsedPositions(models, lambda: self.inputs)
        self.input_judge = InputJudge(models, capture, self.blame, self.glue, self.passed_on, used, self.axes)
        self.output_judge = OutputJudge(models, capture, self.meter, self.fused, self.causes, used, self.axes)
        self.findings: list[Finding] = []
        self.compared: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()
        self.returned_inputs: dict[str, bool] = {}
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
        self.passes = [SteppingPass(self.models.float64_model, float64_inputs, self.glue.arithmetic, draws)]
        if not self.single_pass:
            perturbed_inputs = substitute(map(self.noise.given, map(as_float64, inputs)), fed[1])
            rounding = self.glue.beside(partial(self.models.perturbed_code, self.noise))
            self.passes += [
                SteppingPass(self.models.float64_model, perturbed_inputs, rounding, draws),
                SteppingPass(
                    self.models.float32_model,
                    substitute(map(as_float32, inputs), fed[2]),
                    self.glue.beside(),
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
            finding = self.glue.judged(place, returned, floors, max(0, returned.dim() - 1))
            if finding.verdict != Verdict.EQUAL:
                self.findings += self.blame.never_ran([returned], None)
                self.causes.note(place.layer, self.fused.explain(returned, floors.exact))
            self.findings.append(self.blame.located(finding, Pause("", 0, ())))

    @property
    def failing(self) -> int:
        """The number of layers with a comparison that is not equal."""
        return len({finding.layer for finding in self.findings if finding.verdict > Verdict.EQUAL})

    def report(self) -> ReplayReport:
        """The report on all findings."""
        return ReplayReport(
            tuple(self.findings),
            dict(self.compared),
            dict(self.missing),
            dict(self.causes.explained),
            self.causes.visible,
            self.stopped,
            (
                *self.fused.notes(),
                *self.output_judge.positions.values(),
                *self.output_judge.unreduced.values(),
                *self.calls.notes(),
                *self.causes.notes(),
            ),
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
            return self._step_activation(pauses, fused)
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
        if self.visit is not None and pauses[0].call < MEASURED_CALLS:
            self.visit(name, map_tensors(pauses[0].args, Tensor.clone))
        exact = self.glue.computed(layer, pauses[0])
        if self.single_pass:
            return [exact]
        # The length of the sums depends on the shapes of the inputs, which an in-place layer keeps.
        size = self.noise.rounding(summed_terms(layer, flatten(pauses[0].args)))
        perturbed = perturbed_output(self.models, self.noise, layer, pauses[1].args, size)
        return [exact, perturbed, self.models.compute(self.models.float32_layers[name], pauses[2].args)]

    # -- a captured layer ---------------------------------------------------------------------------------------------

    def _step_captured(self, pauses: list[Pause], files: LayerCall) -> list[Any] | None:
        """Judge the inputs and outputs of a layer. Returns its output for each pass; None when the replay has to stop."""
        first = pauses[0]
        name = first.layer
        given = self.input_judge.judge(pauses, files.inputs)
        self.findings += given.findings
        for captured, exact in given.wrong:
            self.causes.note(name, self.fused.explain(captured, exact))
        layers = (self.models.layers[name], self.models.float32_layers[name])
        with without_padding(*layers) if given.unpadded else nullcontext():
            finding = self.output_judge.judge(first, files, given)
        if finding is None:  # it is judged as part of the glue code
            return self._step_by_itself(pauses)
        self.compared[name] += 1
        if finding.of_another_shape:
            self.findings += finding.findings
            return None
        if finding.fused is not None:
            self._note_compared(first)
            return self._step_fused(finding.fused, finding)
        self.findings += self._joined(finding, first, given) if given.joined else finding.findings
        self._note_compared(first)
        if finding.unreduced:
            return self.compute_in_each_pass(pauses)
        answers = self._answers(finding.completed())
        for tensor, file in zip(answers[0], finding.files):
            if file:
                self.passed_on.note(tensor, file)
        for pause, answer in zip(pauses, answers):
            for tensor, changed in zip(flatten(pause.args), finding.overwritten):
                if changed:  # all code that uses the input of an in-place layer sees its output
                    tensor.copy_(answer[0])
        return [unflatten(finding.result, answer) for answer in answers]

    def _note_compared(self, pause: Pause) -> None:
        self.blame.compared(pause)
        self.causes.compared(pause)

    def _joined(self, compared: Compared, pause: Pause, given: Given) -> list[Finding]:
        """The findings on the outputs of a layer, which say that they judge the glue code before it as well."""
        findings = [replace(finding, joined=given.joined) for finding in compared.findings]
        if all(finding.verdict == Verdict.EQUAL for finding in findings):
            self.blame.right()
            return findings
        if pause.layer not in self.causes.explained and self.glue.recorded:
            args = unflatten(pause.args, given.inputs)
            differences = [replace(each, finding=finding) for each, finding in zip(compared.differences, findings)]
            findings = [
                each.finding if each.equal else self.causes.through_layer(each, pause, args) for each in differences
            ]
        findings = [self.blame.located(finding, pause) for finding in findings]
        return [*self.blame.never_ran(self.capture.load_all(given.files), self.models.layers[pause.layer]), *findings]

    def _answers(self, outputs: list[Tensor]) -> list[list[Tensor]]:
        """The outputs of a captured layer in the arithmetic of each pass: exact, perturbed, float32."""
        answers = [[as_float64(tensor) for tensor in outputs]]
        if not self.single_pass:
            perturbed = [
                self.noise.given_(tensor.to(torch.float64, copy=True) if tensor.is_floating_point() else tensor)
                for tensor in outputs
            ]
            answers += [perturbed, [as_float32(tensor) for tensor in outputs]]
        return answers

    # -- a captured layer that ends in an activation --------------------------------------------------------------------

    def _step_fused(self, fused: FusedLayer, found: Compared) -> list[Any]:
        """The output of the layer for each pass, before the activation: the reference is to compute the activation itself."""
        if self.single_pass:
            raise NeedsFloor
        self.findings += [fused.finding, *found.findings[1:]]
        self.fused.follow(fused)
        answers = self._answers(found.completed(fused.exact))
        return [unflatten(result, [flatten(result)[0], *answer[1:]]) for result, answer in zip(fused.results, answers)]

    def _step_activation(self, pauses: list[Pause], fused: FusedLayer) -> list[Any]:
        """Judge the output of a layer that ends in an activation as that of the reference's activation, and pass it on."""
        first = pauses[0]
        view = fused.view(flatten(first.args)[0])
        results = self.compute_in_each_pass(pauses)
        values = [flatten(result)[0] for result in results]
        finding, captured = self.fused.judge_activation(fused, first, view, values)
        self.compared[first.layer] += 1
        self._note_compared(first)
        self.findings.append(finding)
        if finding.verdict != Verdict.EQUAL:
            self.causes.note(first.layer, fused.other_than(finding.kind))
        for value, (answer,) in zip(values, self._answers([captured])):
            value.copy_(answer)
        return results
