"""Replays the backward pass of a port in float64, and finds the layer that computed a wrong gradient.

The capture is judged layer by layer, as in the forward replay. The reference's loss is differentiated with every captured layer in
place of the reference's own layer. Two conditions are checked for each layer:

* The gradient that the glue code passes to the layer is the gradient that the framework's layer was given.
* The gradients that the layer computes are the vector-Jacobian products, in float64, of its captured inputs and of the gradient
  that it was given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.arithmetic import float64_arithmetic, given_arithmetic
from ..float64.layer_kinds import BATCH_NORMS, channel_axis, may_overwrite, summed_gradient_terms
from ..float64.losses import LossOf, cross_entropy_of, loss_in
from ..float64.operations import perturbed_gradients
from ..float64.perturbation import Arithmetic, Noise, perturbed_layer
from ..float64.stepping import Models, SteppingPass
from ..float64.structures import as_float64, flatten, unflatten
from ..float64.summed_gradients import rounding_of_sums
from ..float64.underflow import UNDERFLOW, underflow, unit_scale
from ..results.verdicts import Verdict
from ..verdict.findings import GRADIENT_OF, Explanation, Finding, ReplayReport
from ..verdict.limits import UNIT
from ..weights.canonical import Array
from .alternative_gradients import THROUGH_MAXIMUM, is_through_maximum, judge_without_ties
from .captured_call import CapturedCall, captured_call
from .difference import Difference
from .parameter_gradients import ParameterGradients
from .rounded_sums import ROUNDED_SUMS, gradient_has_rounded_sums
from .tensors import Capture, Floors, Place, equal, judge

UPSTREAM = "gradient that it is given"
INPUT_GRADIENT = "gradient of its input"

CallKey = tuple[str, int]  # (layer, call)


def replay_backward(
    models: Models,
    capture: Capture,
    inputs: Sequence[Tensor],
    target: Any,
    gradients: Mapping[str, Array],
    rounded: Mapping[str, Explanation] | None = None,
    loss: LossOf = cross_entropy_of,
) -> ReplayReport:
    """Replay the backward pass of a captured training step; findings are in the order of the backward pass.

    inputs, target: the batch of the step. loss: Framework.loss.
    gradients: parameter -> the framework's gradient.
    rounded: layer -> the forward replay's explanation, for layers that it explains by rounding. A DRIFT of the same layer's
        gradients has the same cause.
    """
    return BackwardReplay(models, capture, loss).run(inputs, target, gradients, rounded or {})


class _CapturedLayer(torch.autograd.Function):
    """A node of the graph in place of a captured layer. It returns the captured outputs and the captured gradients."""

    @staticmethod
    def forward(ctx: Any, owner: _BackwardPass, call: CapturedCall, *inputs: Tensor) -> Any:
        ctx.owner, ctx.call, ctx.inputs = owner, call, inputs
        return tuple(owner.converted(tensor).clone() for tensor in call.outputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> Any:
        gradients = [
            None if gradient is None or not tensor.is_floating_point() else ctx.owner.converted(gradient)
            for gradient, tensor in zip(ctx.owner.visit(ctx.call, upstream), ctx.inputs)
        ]
        return None, None, *gradients


class _BackwardPass(SteppingPass):
    """A forward pass over captured layers that is differentiated afterwards. It never pauses."""

    def __init__(self, replay: BackwardReplay, arithmetic: Arithmetic, inputs: Sequence[Tensor]) -> None:
        models, float32 = replay.models, arithmetic is Arithmetic.FLOAT32
        code = nullcontext if float32 else float64_arithmetic
        if arithmetic is Arithmetic.PERTURBED:
            code = partial(models.perturbed_code, replay.noise)
        super().__init__(models.float32_model if float32 else models.float64_model, inputs, code)
        self.layers = models.float32_layers if float32 else models.layers
        self.replay, self.kind = replay, arithmetic

    def run(self, _: Any = None) -> Any:
        return self.model(*self.inputs)

    def converted(self, tensor: Tensor) -> Tensor:
        """A captured tensor in the arithmetic of this pass."""
        return self.kind.convert(tensor, self.replay.noise)

    def ask(self, layer: str, args: Any) -> Any:
        """The captured output of a layer; where it was not captured, the output of the reference's own layer."""
        with given_arithmetic():
            return self._answer(layer, args)

    def _answer(self, layer: str, args: Any) -> Any:
        number = self.calls[layer]
        self.calls[layer] += 1
        models = self.replay.models
        call = captured_call(models, self.replay.capture, layer, number, args)
        if call is None:
            return models.compute(self.layers[layer], args)
        inputs = flatten(args)
        if not any(tensor.requires_grad for tensor in inputs):  # without it, autograd would skip the first layer
            inputs = [t.detach().requires_grad_() if t.is_floating_point() else t for t in inputs]
        # With this input, autograd also visits a layer that has no other float input.
        anchor = torch.zeros((), dtype=call.outputs[0].dtype, requires_grad=True)
        return unflatten(call.result, _CapturedLayer.apply(self, call, *inputs, anchor))

    def visit(self, call: CapturedCall, upstream: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients of a layer's inputs, given the gradients of its outputs; the last one, of the anchor, is None."""
        if self.kind is Arithmetic.EXACT:
            return [*self.replay.judge(call, upstream), None]
        self.replay.measure_glue(call, upstream, self.kind)
        return [*self.replay.input_gradients[call.layer, call.call][self.kind], None]


@dataclass(frozen=True)
class _Products:
    """The vector-Jacobian products of a layer: gradients of its float inputs, and of its parameters."""

    inputs: list[Tensor | None]
    parameters: list[Tensor | None]


@dataclass
class _GlueGradient:
    """An upstream gradient that the glue code of the reference does not reproduce to the last bit.

    exact, captured: the gradient of the reference, and the captured one.
    axis: axis of the channels.
    others: the gradient of the perturbed and of the float32 pass.
    """

    exact: Tensor
    captured: Tensor
    axis: int
    others: dict[Arithmetic, Tensor]


class BackwardReplay:
    """The backward replay of one capture."""

    def __init__(self, models: Models, capture: Capture, loss: LossOf = cross_entropy_of) -> None:
        self.models, self.capture, self.loss = models, capture, loss
        self.noise = models.noise()
        self.float32_noise = Noise(models.seed) if models.precision.is_mixed else self.noise
        self.findings: list[Finding] = []
        self.explained: dict[str, Explanation] = {}
        self.compared: Counter[str] = Counter()
        self.parameters = ParameterGradients(models.float64_model)
        # As they were captured; where they were not, as each pass computes them, so that they have its rounding.
        self.input_gradients: dict[CallKey, dict[Arithmetic, list[Tensor | None]]] = {}
        self.glue: dict[tuple[CallKey, int], _GlueGradient] = {}

    def run(
        self,
        inputs: Sequence[Tensor],
        target: Any,
        gradients: Mapping[str, Array],
        rounded: Mapping[str, Explanation],
    ) -> ReplayReport:
        """Judge layers, glue code and the gradients of parameters; the arguments are those of ``replay_backward``."""
        exact = self._differentiate(Arithmetic.EXACT, inputs, target)
        others: list[dict[str, Tensor]] = [{}, {}]
        if self.glue or exact:
            others = [self._differentiate(each, inputs, target) for each in (Arithmetic.PERTURBED, Arithmetic.FLOAT32)]
        self.parameters.add_glue([exact, *others])
        self.findings += self.parameters.judge(gradients)
        self._judge_glue()
        self._settle_explanations(rounded)
        order = list(dict.fromkeys(finding.layer for finding in self.findings))
        self.findings.sort(key=lambda finding: order.index(finding.layer))
        return ReplayReport(tuple(self.findings), dict(self.compared), explained=dict(self.explained))

    def _differentiate(self, arithmetic: Arithmetic, inputs: Sequence[Tensor], target: Any) -> dict[str, Tensor]:
        """One forward and backward pass over the capture. Returns the gradients of the parameters that glue code uses."""
        backward_pass = _BackwardPass(self, arithmetic, [arithmetic.convert(tensor, self.noise) for tensor in inputs])
        for parameter in backward_pass.model.parameters():
            parameter.grad = None
        noise = self.noise if arithmetic is Arithmetic.PERTURBED else None
        float64 = arithmetic is not Arithmetic.FLOAT32
        loss = loss_in(self.loss, backward_pass.switch(None), target, float64, noise)
        with perturbed_gradients(noise):
            loss.backward()
        return {name: p.grad for name, p in backward_pass.model.named_parameters() if p.grad is not None}

    def _settle_explanations(self, rounded: Mapping[str, Explanation]) -> None:
        """Decide which gradients a rounding of their layer explains, besides those that it reproduces.

        Rounding in the sums of a layer changes the gradients of its weights by no more than that of its input. A DRIFT has the
        same cause as a rounding that the forward replay found in its layer.
        """
        worst: dict[str, float] = {}
        for each in self.findings:
            if each.what == INPUT_GRADIENT and each.rounding is not None:
                worst[each.layer] = max(worst.get(each.layer, 0.0), each.ratio, each.channel_ratio)
        for place, finding in enumerate(self.findings):
            if finding.verdict == Verdict.EQUAL or finding.rounding is not None:
                continue
            known, of_weight = self.explained.get(finding.layer), finding.what != INPUT_GRADIENT
            if finding.what.startswith(GRADIENT_OF):
                within = of_weight and finding.ratio <= worst.get(finding.layer, 0.0)
                if known is not None and known.rounding and within:
                    self.findings[place] = replace(finding, rounding=known)
                    continue
                if known is None or known.kind != UNDERFLOW:
                    self.explained.pop(finding.layer, None)
            if finding.verdict == Verdict.DRIFT and finding.layer in rounded:
                self.explained.setdefault(finding.layer, rounded[finding.layer])
                self.findings[place] = replace(finding, rounding=rounded[finding.layer])

    # -- one layer ----------------------------------------------------------------------------------------------------

    def judge(self, call: CapturedCall, exact_upstream: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Judge a layer's upstream gradients and the gradients of its inputs. Returns the captured gradients of the inputs.

        exact_upstream: the upstream gradients that the glue code of the exact pass computes.
        """
        layer = self.models.layers[call.layer]
        upstream = [self._judge_upstream(call, index, g) for index, g in enumerate(exact_upstream)]
        self.compared[call.layer] += 1
        unit = self.models.precision.backward_unit(call.layer)
        passes = {each: self._products(call, upstream, each, unit) for each in Arithmetic}
        first = next((g for g in upstream if g is not None), call.outputs[0])
        terms = summed_gradient_terms(layer, call.inputs, first)
        floats = [index for index, tensor in enumerate(call.inputs) if tensor.is_floating_point()]
        results = {
            each: [dict(zip(floats, found.inputs)).get(i) for i in range(len(call.input_gradients))]
            for each, found in passes.items()
        }
        for index, captured in enumerate(call.input_gradients):
            product, *others = (found[index] for found in results.values())
            if product is None or captured is None:
                continue
            axis = channel_axis(layer, captured.dim())
            floors = Floors.between(product, others[0], others[1], axis, unit)
            self._judge_input_gradient(call, index, captured, floors, terms, upstream[0])
            for found in results.values():
                found[index] = captured
        gradient = upstream[0] if len(call.outputs) == 1 and call.inputs else None
        sums = {} if gradient is None else dict(rounding_of_sums(layer, as_float64(call.inputs[0]), gradient))
        self.parameters.add(layer, [each.parameters for each in passes.values()], first, unit, sums)
        self.input_gradients[call.layer, call.call] = results
        return results[Arithmetic.EXACT]

    def _judge_upstream(self, call: CapturedCall, index: int, exact: Tensor | None) -> Tensor | None:
        """Compare an upstream gradient with the captured one. Returns the captured one, or the exact one where there is none."""
        captured = call.upstream[index]
        if captured is None or exact is None:
            return exact
        if equal(exact, captured):
            self.findings.append(self._place(call.layer, call.call, index, UPSTREAM).identical())
        else:
            axis = channel_axis(self.models.layers[call.layer], exact.dim())
            self.glue[(call.layer, call.call), index] = _GlueGradient(exact.double(), captured, axis, {})
        return as_float64(captured)

    def _judge_input_gradient(
        self, call: CapturedCall, index: int, captured: Tensor, floors: Floors, terms: int, upstream: Tensor | None
    ) -> None:
        """Judge the gradient of one input of a layer, and explain a wrong one of a batch norm."""
        layer = self.models.layers[call.layer]
        place = self._place(call.layer, call.call, index, INPUT_GRADIENT)
        axis = channel_axis(layer, captured.dim())
        finding = judge(place, captured, floors, terms, axis)
        difference = Difference(finding, captured, floors, axis, finding.terms)
        if finding.verdict != Verdict.EQUAL and isinstance(layer, nn.modules.pooling._MaxPoolNd):
            finding = judge_without_ties(layer, call.inputs[0], difference)
        if finding.verdict != Verdict.EQUAL and isinstance(layer, BATCH_NORMS) and upstream is not None:
            x = as_float64(call.inputs[0])
            if gradient_has_rounded_sums(layer, x, upstream, difference):
                self.explained[call.layer] = ROUNDED_SUMS
                finding = replace(finding, rounding=ROUNDED_SUMS)
        self._explain_underflow(finding, captured, floors.exact)
        self.findings.append(finding)

    def _explain_underflow(self, finding: Finding, captured: Tensor, exact: Tensor) -> None:
        """Explain a gradient whose small values became zero in float16."""
        precision = self.models.precision
        if finding.verdict != Verdict.EQUAL and precision.name == "float16" and captured.shape == exact.shape:
            explanation = underflow(captured, exact, precision.loss_scale)
            if explanation is not None:
                self.explained.setdefault(finding.layer, explanation)

    def _place(self, layer: str, call: int, index: int, what: str) -> Place:
        return Place(layer, call, index, type(self.models.layers[layer]).__name__, what)

    def _products(
        self, call: CapturedCall, upstream: Sequence[Tensor | None], arithmetic: Arithmetic, unit: float
    ) -> _Products:
        """The vector-Jacobian products of a layer for its captured inputs and these upstream gradients."""
        layer, float32_layer = self.models.layers[call.layer], self.models.float32_layers[call.layer]
        if arithmetic is Arithmetic.FLOAT32:
            layer = float32_layer
        noise = self.noise if unit == self.noise.unit else self.float32_noise
        perturbed = arithmetic is Arithmetic.PERTURBED
        with perturbed_layer(layer, noise, unit) if perturbed else nullcontext():
            return self._differentiated(layer, call, upstream, arithmetic, noise)

    def _differentiated(
        self,
        layer: nn.Module,
        call: CapturedCall,
        upstream: Sequence[Tensor | None],
        arithmetic: Arithmetic,
        noise: Noise,
    ) -> _Products:
        lower = arithmetic is Arithmetic.FLOAT32 and noise.unit != UNIT
        context = self.models.precision.autocast() if lower else nullcontext()
        scale = unit_scale(upstream) if lower else 1.0
        with torch.enable_grad():
            inputs = [
                arithmetic.convert(t, noise).detach().requires_grad_() if t.is_floating_point() else t
                for t in call.inputs
            ]
            # Autograd does not allow a layer to overwrite a tensor whose gradient is requested.
            passed = [tensor.clone() for tensor in inputs] if may_overwrite(layer) else inputs
            with context:
                outputs = flatten(self.models.compute(layer, unflatten(call.args, passed)))
            pairs = [
                (y, (arithmetic.convert(g, noise) * scale).to(y.dtype) if lower else arithmetic.convert(g, noise))
                for y, g in zip(outputs, upstream)
                if g is not None and y.requires_grad
            ]
            wanted = [tensor for tensor in inputs if tensor.is_floating_point()]
            parameters = list(layer.parameters())
            if not pairs or not (wanted or parameters):
                return _Products([None] * len(wanted), [None] * len(parameters))
            sources = [*wanted, *parameters]
            with perturbed_gradients(noise if arithmetic is Arithmetic.PERTURBED else None):
                found = torch.autograd.grad([y for y, _ in pairs], sources, [g for _, g in pairs], allow_unused=True)
        gradients = [torch.zeros_like(source) if g is None else g for g, source in zip(found, sources)]
        if lower:
            gradients = [g.float() / scale for g in gradients]
        return _Products(gradients[: len(wanted)], gradients[len(wanted) :])

    # -- glue code ----------------------------------------------------------------------------------------------------

    def measure_glue(self, call: CapturedCall, upstream: Sequence[Tensor | None], arithmetic: Arithmetic) -> None:
        """Measure the noise of upstream gradients in another pass, where the exact pass differs from the capture."""
        for index, g in enumerate(upstream):
            found = self.glue.get(((call.layer, call.call), index))
            if g is not None and found is not None:
                found.others[arithmetic] = g

    def _judge_glue(self) -> None:
        """Judge the glue code where it differs from the capture, and explain a wrong gradient of the loss."""
        for ((layer, call), index), glue in self.glue.items():
            if len(glue.others) < 2:
                continue  # no gradient reached this layer in another pass
            others = (glue.others[Arithmetic.PERTURBED], glue.others[Arithmetic.FLOAT32])
            floors = Floors.between(glue.exact, *others, glue.axis, self.models.precision.unit)
            finding = judge(self._place(layer, call, index, UPSTREAM), glue.captured, floors, 1, glue.axis)
            if finding.verdict != Verdict.EQUAL:
                outputs = map(self.capture.load, self.capture.records[layer, call].outputs)
                logits = next((y for y in outputs if y.shape == glue.captured.shape), None)
                difference = Difference(finding, glue.captured, floors, glue.axis, finding.terms)
                if logits is not None and is_through_maximum(difference, logits):
                    self.explained[layer] = THROUGH_MAXIMUM
                    finding = replace(finding, rounding=THROUGH_MAXIMUM)
            self._explain_underflow(finding, glue.captured, glue.exact)
            self.findings.append(finding)
