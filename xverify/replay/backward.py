"""A training step in float64: what its loss, gradients and running statistics should be, and which layer sent back a wrong one.

``truth`` computes the whole step exactly, and again with every layer's result and gradient moved by rounding, forward and
backward: by how much the gradients move then is the floor of the whole model.

``Backward`` judges a capture layer by layer, as ``replay`` does going forward: the reference's loss is differentiated with every
captured layer in place of its own. What comes back to a layer must be what the framework's layer was given back (the code between
layers), and what the layer sends back must be the vector-Jacobian product in float64 of what it took and was given back.

Needs torch, which is the reference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..verdict import limits as rule
from ..verdict.findings import Finding
from ..verdict.limits import UNIT
from . import forward as replay
from . import stepping as passes
from .stepping import Models, Noise, as_float32, as_float64, filled, flatten
from .tensors import Capture, Floors, channel_axis, equal, forms, judge, mean_squares, rms

REPEATS = 2  # noisy passes; with float32's own error that makes three measures of the floor
NORMS = nn.modules.batchnorm._BatchNorm


def loss_of(logits: Any, target: Tensor) -> Tensor:
    """The mean cross-entropy of logits (..., classes)."""
    (first,) = flatten(logits)
    return nn.functional.cross_entropy(first.flatten(0, -2), target.flatten())


def gradient_terms(module: nn.Module, inputs: Sequence[Tensor], given: Tensor) -> int:
    """How many terms one value of the gradient of the layer's input sums up. given: the gradient of its output."""
    if isinstance(module, nn.modules.conv._ConvNd):
        return int(module.out_channels // module.groups * math.prod(module.kernel_size))
    if isinstance(module, nn.Linear):
        return int(module.out_features)
    if isinstance(module, NORMS):
        return given.numel() // given.shape[1]
    return passes.reduction(module, inputs)


@contextmanager
def noisy(model: nn.Module, noise: Noise, times: float = 1.0) -> Iterator[None]:
    """Within it, every layer of the float64 model moves what it returns, and the gradient that it is given, by rounding.

    times: as many times as far.
    """
    hooks = []
    for layer in passes.leaves(model).values():

        def move(layer: nn.Module, args: Any, result: Any) -> Any:
            if isinstance(layer, passes.COPIES):
                return None
            size = times * UNIT * rule.growth(passes.reduction(layer, flatten(args)))

            def moved(y: Tensor) -> Tensor:
                if not (y.is_floating_point() and y.requires_grad):
                    return y
                back = times * UNIT * (rule.growth(gradient_terms(layer, flatten(args), y)) if y.dim() > 1 else 1.0)
                # Added and not multiplied: autograd has nothing to keep of it.
                y = y + noise.moved(y.detach(), size).sub_(y.detach())
                y.register_hook(lambda g: noise.moved(g, back))
                return y

            return passes.replace(result, moved)

        hooks.append(layer.register_forward_hook(move))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _step(model: nn.Module, inputs: Sequence[Tensor], target: Tensor) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients by parameter."""
    parameters = dict(model.named_parameters())
    loss = loss_of(model(*inputs), target)
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    pairs = zip(parameters.items(), found)
    return float(loss.detach()), {name: torch.zeros_like(p) if g is None else g for (name, p), g in pairs}


def _noisy_step(
    model: nn.Module, float64_inputs: Sequence[Tensor], target: Tensor, noise: Noise, times: float = 1.0
) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients where inputs, weights and what layers give, forward and backward, move by rounding, so many times."""
    exactly = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        noise.move_(parameter.data, times * UNIT)
    try:
        with noisy(model, noise, times):
            return _step(model, [noise.moved(tensor, times * UNIT) for tensor in float64_inputs], target)
    finally:
        for name, parameter in model.named_parameters():
            parameter.data.copy_(exactly[name])


def widened(models: Models, inputs: Sequence[Tensor], target: Tensor, times: float) -> dict[str, float]:
    """{parameter: rms} by which gradients move where every layer rounds so many times as far as float32.

    Rounding moves an activation past a kink, as of a ReLU at zero, only now and then; it does so surely where there is more of
    it. The models' running statistics are other ones afterwards.
    """
    float64_inputs = [as_float64(tensor) for tensor in inputs]
    _, exact = _step(models.float64_model, float64_inputs, target)
    noise, squares = Noise(models.seed), dict.fromkeys(exact, 0.0)
    for _ in range(REPEATS):
        _, moved = _noisy_step(models.float64_model, float64_inputs, target, noise, times)
        for name, g in exact.items():
            squares[name] += _square(moved[name] - g) / REPEATS
    return {name: math.sqrt(value) for name, value in squares.items()}


def _statistics(model: nn.Module) -> dict[str, Tensor]:
    """Running means and variances by name, of batch norms that average by a momentum: of others a state holds no count."""
    return {
        f"{name}.{own}": buffer.clone()
        for name, layer in model.named_modules()
        if isinstance(layer, NORMS) and layer.momentum
        for own, buffer in layer.named_buffers(recurse=False)
        if buffer.is_floating_point()
    }


def truth(models: Models, inputs: Sequence[Tensor], target: Tensor, repeats: int = REPEATS) -> dict[str, Any]:
    """A training step's loss, gradients and running statistics in float64, with floors (rms) of each. repeats: noisy passes.

    {"loss", "loss_floor", "floors": {parameter: rms}, "sizes": {parameter: rms}, "statistics": {name: rms of the floor},
    "terms": {batch norm: values a channel}, "momentum": {batch norm: its momentum}, "arrays": {"gradient/name", "statistic/name"}}
    The models' running statistics are other ones afterwards.
    """
    float64_inputs = [as_float64(tensor) for tensor in inputs]
    start = _statistics(models.float64_model)
    terms: dict[str, int] = {}
    norms = {name: layer for name, layer in models.layers.items() if isinstance(layer, NORMS)}
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, args, name=name: terms.__setitem__(name, args[0].numel() // args[0].shape[1])
        )
        for name, layer in norms.items()
    ]
    # A loss sums over all classes: rounding grows with their number as in any sum.
    final = models.float64_model.register_forward_hook(
        lambda _, __, result: sizes_of.append(flatten(result)[0].shape[-1])
    )
    sizes_of: list[int] = []
    loss, exact = _step(models.float64_model, float64_inputs, target)
    final.remove()
    classes = sizes_of[0]
    for hook in hooks:
        hook.remove()
    ends = _statistics(models.float64_model)
    own_loss, own = _step(models.float32_model, [as_float32(tensor) for tensor in inputs], target)
    squares = {name: _square(own[name] - g) for name, g in exact.items()}
    statistics = {name: _square(value - ends[name]) for name, value in _statistics(models.float32_model).items()}
    moves = [abs(own_loss - loss)]
    noise = Noise(models.seed)
    for _ in range(repeats):
        buffers = dict(models.float64_model.named_buffers())
        for name, value in start.items():
            buffers[name].copy_(value)
        moved_loss, moved = _noisy_step(models.float64_model, float64_inputs, target, noise)
        moves.append(abs(moved_loss - loss))
        for name, g in exact.items():
            squares[name] += _square(moved[name] - g) / repeats
        for name, value in _statistics(models.float64_model).items():
            statistics[name] += _square(value - ends[name]) / repeats
    sizes = {name: math.sqrt(_square(g)) for name, g in exact.items()}
    return {
        "loss": loss,
        "loss_floor": max(*moves, rule.growth(classes) * UNIT / math.sqrt(3) * abs(loss)),
        "floors": {name: math.sqrt(s + (UNIT * sizes[name]) ** 2 / 3) for name, s in squares.items()},
        "sizes": sizes,
        "statistics": {name: math.sqrt(s + UNIT**2 / 3 * _square(ends[name])) for name, s in statistics.items()},
        "terms": terms,
        "momentum": {name: norm.momentum for name, norm in norms.items()},
        "arrays": {
            **{f"gradient/{name}": g.numpy() for name, g in exact.items()},
            **{f"statistic/{name}": value.numpy() for name, value in ends.items()},
        },
    }


def _square(tensor: Tensor) -> float:
    """The mean square; of what is not finite, infinity."""
    found = float(tensor.double().square().mean())
    return found if math.isfinite(found) else math.inf


# -- layer by layer ---------------------------------------------------------------------------------------------------


@dataclass
class Sum:
    """The gradient of a parameter over all calls of its layer: exact, and mean squares of its floor by channel, (C,)."""

    exact: Tensor
    moved: np.ndarray
    own: np.ndarray
    terms: int
    kind: str


@dataclass
class Held:
    """A captured call. inputs, outputs: in the reference's layout; given, sent: the gradients of outputs and inputs.

    result: what the layer returns, with empty tensors in place of its outputs.
    """

    layer: str
    call: int
    args: Any
    result: Any
    inputs: list[Tensor]
    outputs: list[Tensor]
    given: list[Tensor | None]
    sent: list[Tensor | None]


class _Swap(torch.autograd.Function):
    """In place of a layer: returns what was captured, and sends back what was captured."""

    @staticmethod
    def forward(ctx: Any, owner: _Pass, held: Held, *own: Tensor) -> Any:
        ctx.owner, ctx.held, ctx.own = owner, held, own
        return tuple(owner.as_given(tensor).clone() for tensor in held.outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        owner, held = ctx.owner, ctx.held
        sent = owner.visit(held, gradients)
        back = [
            None if tensor is None or not own.is_floating_point() else owner.as_given(tensor)
            for tensor, own in zip(sent, ctx.own)
        ]
        return None, None, *back


class _Pass(passes.Pass):
    """One forward and backward pass over a capture. what: "exact", "moved" or "float32"."""

    def __init__(self, replayed: Backward, what: str, inputs: Sequence[Tensor], target: Tensor) -> None:
        models = replayed.models
        super().__init__(models.float32_model if what == "float32" else models.float64_model, inputs)
        self.replayed, self.what, self.target = replayed, what, target

    def run(self, _: Any = None) -> Any:
        return self.model(*self.inputs)

    def as_given(self, tensor: Tensor) -> Tensor:
        """A captured tensor as this pass takes it."""
        if not tensor.is_floating_point():
            return tensor
        if self.what == "float32":
            return as_float32(tensor)
        return self.replayed.noise.moved(as_float64(tensor)) if self.what == "moved" else as_float64(tensor)

    def ask(self, layer: str, args: Any) -> Any:
        call = self.calls[layer]
        self.calls[layer] += 1
        models = self.replayed.models
        module = (models.float32_layers if self.what == "float32" else models.layers)[layer]
        held = self.replayed.held(layer, call, args, module)
        if held is None:
            return models.compute(module, args)
        own = flatten(args)
        if not any(tensor.requires_grad for tensor in own):  # the first layer: autograd would not come back to it
            own = [t.detach().requires_grad_() if t.is_floating_point() else t for t in own]
        anchor = torch.zeros((), dtype=held.outputs[0].dtype, requires_grad=True)
        return filled(held.result, _Swap.apply(self, held, *own, anchor))

    def visit(self, held: Held, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """What the layer sends back, once it has been given this."""
        key = held.layer, held.call
        if self.what == "exact":
            return [*self.replayed.judge(held, gradients), None]
        for index, g in enumerate(gradients):
            if g is not None and (key, index) in self.replayed.unlike:
                exact, _, axis = self.replayed.unlike[key, index]
                squares = mean_squares(g.double(), axis, exact=exact)
                self.replayed.apart[key, index, self.what] = squares
        return [*self.replayed.sent[key], None]


@dataclass
class Backward:
    """The backward replay of one capture. ``findings`` come in the order of the backward pass.

    rounded: what the forward pass explained as rounding, by layer; its DRIFT going back has the same cause.
    """

    models: Models
    capture: Capture
    rounded: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    compared: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.noise = Noise(self.models.seed)
        self.near = replay.Replay(self.models, self.capture)
        self.sums: dict[str, Sum] = {}
        self.unlike: dict[tuple[tuple[str, int], int], tuple[Tensor, Tensor, int]] = {}
        self.apart: dict[tuple[tuple[str, int], int, str], np.ndarray] = {}  # mean squares by channel
        self.sent: dict[tuple[str, int], list[Tensor | None]] = {}
        self.explained: dict[str, dict[str, Any]] = {}
        self.names = {id(p): name for name, p in self.models.float64_model.named_parameters()}

    def run(self, inputs: Sequence[Tensor], target: Tensor, gradients: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Judge every layer, and the parameters' gradients; {"findings", "compared"} as replay.Replay.report."""
        float64_inputs = [as_float64(tensor) for tensor in inputs]
        self._go("exact", float64_inputs, target)
        glue = {name: p.grad for name, p in self.models.float64_model.named_parameters() if p.grad is not None}
        self._parameters(gradients, glue)
        if self.unlike:
            self._go("moved", [self.noise.moved(tensor) for tensor in float64_inputs], target)
            self._go("float32", [as_float32(tensor) for tensor in inputs], target)
            self._between()
        worst = {each.layer: max(each.ratio, each.channel_ratio) for each in self.findings if each.what == SENT}
        for finding in self.findings:
            off = finding.verdict != "EQUAL" and finding.what.startswith(GRADIENT)
            if off and finding.ratio > worst.get(finding.layer, 0.0):
                self.explained.pop(finding.layer, None)  # what its sums lose moves its weights' gradients no further
            if finding.verdict == "DRIFT" and finding.layer in self.rounded:
                self.explained.setdefault(finding.layer, dict(self.rounded[finding.layer]))
        order = list(dict.fromkeys(finding.layer for finding in self.findings))
        self.findings.sort(key=lambda finding: order.index(finding.layer))
        return {
            "findings": [vars(finding) for finding in self.findings],
            "compared": dict(self.compared),
            "missing": {},
            "explained": self.explained,
            "visible": 0.0,
            "stopped": "",
        }

    def _go(self, what: str, inputs: Sequence[Tensor], target: Tensor) -> None:
        each = _Pass(self, what, inputs, target)
        for parameter in each.model.parameters():
            parameter.grad = None
        loss_of(each.switch(None), target).backward()

    def held(self, name: str, call: int, args: Any, layer: nn.Module) -> Held | None:
        """A captured call of a layer in the reference's layout; None where it was not captured, or in another layout."""
        record: Mapping[str, Any] | None = self.capture.records.get((name, call))
        if record is None or not record["outputs"] or not any(record["output_gradients"]):
            return None
        own = flatten(args)
        inputs, sent = self._fitting(record["inputs"], record["input_gradients"], own, layer)
        if any(tensor is None and o.is_floating_point() for tensor, o in zip(inputs, own)):
            return None
        given = [o.detach() if tensor is None else tensor for tensor, o in zip(inputs, own)]
        with torch.no_grad():  # float32 is enough to tell which captured tensor is which
            result = self.models.compute(
                self.models.float32_layers[name], filled(args, [as_float32(t).clone() for t in given])
            )
        near = flatten(result)
        outputs, back = self._fitting(record["outputs"], record["output_gradients"], near, layer)
        if outputs[0] is None:
            return None
        if any(tensor is None for tensor in outputs):  # a state that the framework keeps to itself
            with torch.no_grad():
                exact = self.models.compute(
                    self.models.layers[name], filled(args, [as_float64(t).clone() for t in given])
                )
            outputs = [e if tensor is None else tensor for tensor, e in zip(outputs, flatten(exact))]
        values = [tensor for tensor in outputs if tensor is not None]
        empty = passes.replace(result, lambda tensor: tensor.new_empty(0))
        return Held(name, call, args, empty, given, values, back, sent)

    def _fitting(
        self, files: Sequence[str], gradients: Sequence[str | None], own: Sequence[Tensor], layer: nn.Module
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """The captured tensors and their gradients that stand for these of the reference, in its layout."""
        left = [(self.capture.load(file), gradient) for file, gradient in zip(files, gradients)]
        found: list[tuple[Tensor | None, Tensor | None]] = []
        for mine in own:
            choices = [
                (form, place, which)
                for which, (tensor, _) in enumerate(left)
                if tensor.is_floating_point() == mine.is_floating_point()
                for place, form in enumerate(forms(tensor, mine.shape, layer, self.capture.channels_last))
            ]
            if not choices:
                found.append((None, None))
                continue
            form, place, which = choices[0]
            if len(choices) > 1:
                float64_inputs = mine.detach().double()
                form, place, which = min(
                    choices, key=lambda choice: float(torch.dist(choice[0].double(), float64_inputs))
                )
            _, file = left.pop(which)
            gradient = None
            if file is not None:
                turned = forms(self.capture.load(file), mine.shape, layer, self.capture.channels_last)
                gradient = turned[place]
            found.append((form, gradient))
        return [tensor for tensor, _ in found], [gradient for _, gradient in found]

    # -- judging ------------------------------------------------------------------------------------------------------

    def judge(self, held: Held, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Judge what a layer was given back and what it sends back; returns the latter, as it was captured."""
        name, call = held.layer, held.call
        layer, kind = self.models.layers[name], type(self.models.layers[name]).__name__
        given: list[Tensor | None] = []
        for index, (own, theirs) in enumerate(zip(gradients, held.given)):
            if theirs is None or own is None:
                given.append(own)
                continue
            axis = channel_axis(layer, own.dim())
            if equal(own, theirs):
                self.findings.append(Finding(name, call, index, kind, GIVEN, 0.0, 0.0, 1, 0.0, 0.0, 0.0))
            else:
                self.unlike[(name, call), index] = (own.double(), theirs, axis)
            given.append(as_float64(theirs))
        self.compared[name] += 1
        sent, moved, own_sent = (self._product(held, given, what) for what in ("exact", "moved", "float32"))
        result: list[Tensor | None] = []
        floats = [index for index, tensor in enumerate(held.inputs) if tensor.is_floating_point()]
        back = next((g for g in given if g is not None), held.outputs[0])
        terms = gradient_terms(layer, held.inputs, back)
        exact_inputs = dict(zip(floats, zip(sent[0], moved[0], own_sent[0])))
        for index, theirs in enumerate(held.sent):
            exact = exact_inputs.get(index)
            if exact is None or theirs is None or exact[0] is None:
                result.append(None if exact is None else exact[0])
                continue
            axis = channel_axis(layer, theirs.dim())
            floor = Floors(exact[0], *(mean_squares(each, axis, exact=exact[0]) for each in exact[1:]))
            finding = judge(name, call, index, kind, SENT, theirs, floor, terms, axis)
            if finding.verdict != "EQUAL" and isinstance(layer, nn.modules.pooling._MaxPoolNd):
                finding = self._apart_from_ties(held, finding, theirs, floor)
            if finding.verdict != "EQUAL" and isinstance(layer, NORMS):
                self._rounded_sums(held, given[0], finding, theirs, floor)
            self.findings.append(finding)
            result.append(theirs)
        self._add(layer, kind, sent[1], moved[1], own_sent[1], back)
        self.sent[name, call] = result
        return result

    def _product(self, held: Held, given: Sequence[Tensor | None], what: str) -> tuple[list[Any], list[Any]]:
        """The vector-Jacobian product of a layer: gradients of its float inputs, and of its parameters."""
        layer = (self.models.float32_layers if what == "float32" else self.models.layers)[held.layer]
        twin = self.models.float32_layers[held.layer]

        def taken(tensor: Tensor) -> Tensor:
            if what == "float32":
                return as_float32(tensor)
            return self.noise.moved(as_float64(tensor)) if what == "moved" else as_float64(tensor)

        def product() -> tuple[list[Any], list[Any]]:
            with torch.enable_grad():
                inputs = [
                    taken(tensor).detach().requires_grad_() if tensor.is_floating_point() else tensor
                    for tensor in held.inputs
                ]
                # Autograd lets no layer overwrite what a gradient is asked of.
                passed = [tensor.clone() for tensor in inputs] if replay.may_overwrite(layer) else inputs
                outputs = flatten(self.models.compute(layer, filled(held.args, passed)))
                pairs = [(y, taken(g)) for y, g in zip(outputs, given) if g is not None and y.requires_grad]
                wanted = [tensor for tensor in inputs if tensor.is_floating_point()]
                parameters = list(layer.parameters(recurse=False))
                if not pairs or not (wanted or parameters):
                    return [None] * len(wanted), [None] * len(parameters)
                found = torch.autograd.grad(
                    [y for y, _ in pairs], [*wanted, *parameters], [g for _, g in pairs], allow_unused=True
                )
            whole = [torch.zeros_like(to) if g is None else g for g, to in zip(found, [*wanted, *parameters])]
            return whole[: len(wanted)], whole[len(wanted) :]

        if what != "moved":
            return product()
        with passes.moved_layer(layer, twin, self.noise, UNIT):
            return product()

    def _add(
        self, layer: nn.Module, kind: str, exact: Sequence[Any], moved: Sequence[Any], own: Sequence[Any], back: Tensor
    ) -> None:
        """Add a call's share to the gradients of the layer's parameters."""
        for parameter, g, near, float32_outputs in zip(layer.parameters(recurse=False), exact, moved, own):
            if g is None:
                continue
            axis = 0
            squares = mean_squares(near, axis, exact=g), mean_squares(float32_outputs, axis, exact=g)
            # Every value of a gradient sums over all places where its parameter was used.
            terms = max(1, back.numel() // max(1, parameter.shape[0]))
            name = self.names[id(parameter)]
            if name in self.sums:
                so_far = self.sums[name]
                so_far.exact += g
                so_far.moved, so_far.own = so_far.moved + squares[0], so_far.own + squares[1]
                so_far.terms += terms
            else:
                self.sums[name] = Sum(g.clone(), *squares, terms, kind)

    def _parameters(self, gradients: Mapping[str, np.ndarray], glue: Mapping[str, Tensor]) -> None:
        for name, total in self.sums.items():
            if name not in gradients:
                continue
            exact = total.exact + glue[name] if name in glue else total.exact
            layer, _, suffix = name.rpartition(".")
            theirs, moved, own = torch.from_numpy(gradients[name]), total.moved, total.own
            if exact.dim() == 1:  # a floor of one value alone is luck: these are one channel
                exact, theirs, moved, own = (
                    exact[None],
                    theirs[None],
                    moved.mean(keepdims=True),
                    own.mean(keepdims=True),
                )
            floor = Floors(exact, moved, own)
            what = f"{GRADIENT} {suffix}"
            self.findings.append(judge(layer, 0, 0, total.kind, what, theirs, floor, total.terms, 0))

    def _between(self) -> None:
        """The code between layers, where it does not agree to the bit."""
        for (key, index), (exact, theirs, axis) in self.unlike.items():
            moved, own = (self.apart.get((key, index, what)) for what in ("moved", "float32"))
            if moved is None or own is None:
                continue
            kind, floor = type(self.models.layers[key[0]]).__name__, Floors(exact, moved, own)
            finding = judge(*key, index, kind, GIVEN, theirs, floor, 1, axis)
            self.findings.append(finding)
            if finding.verdict != "EQUAL" and self._through_maximum(key, finding, theirs, floor, axis):
                self.explained[key[0]] = {"kind": "loss through the maximum", "says": THROUGH_MAXIMUM, "rounding": True}

    def _through_maximum(
        self, key: tuple[str, int], finding: Finding, theirs: Tensor, floor: Floors, axis: int
    ) -> bool:
        """Whether a gradient is right but at the largest logit of each row, within the rounding of a sum over all."""
        files = self.capture.records[key]["outputs"]
        logits = next((y for y in map(self.capture.load, files) if y.shape == theirs.shape), None)
        if logits is None:
            return False
        largest = logits == logits.amax(-1, keepdim=True)
        classes = theirs.shape[-1]
        rest = judge(
            *key, finding.index, finding.kind, GIVEN, theirs * ~largest,
            Floors(floor.exact * ~largest, floor.moved, floor.own), classes, axis,
        )  # fmt: skip
        slip = float((theirs - floor.exact)[largest].abs().max())
        whole = float(floor.exact.abs().sum(-1).max())
        return rest.verdict == "EQUAL" and slip <= rule.EQUAL_R * rule.growth(classes) * UNIT * whole

    def _rounded_sums(self, held: Held, g: Tensor | None, finding: Finding, theirs: Tensor, floor: Floors) -> None:
        """Explain a batch norm's gradient that is right but for what its sums over the batch lose, as replay.Replay does.

        A channel of it is w/σ ((g - E[g]) - x̂ E[g x̂]), so of the form A (g - E[g]) + B x̂ + D. A is off as far as the standard
        deviation is, B three times as far and by what E[g x] - E[x] E[g] loses, D by what the means lose.
        """
        layer: Any = self.models.layers[held.layer]
        x, y = as_float64(held.inputs[0]), as_float64(theirs)
        if g is None or not layer.training or y.shape != x.shape or not bool(torch.isfinite(y).all()):
            return
        axes = [axis for axis in range(x.dim()) if axis != 1]

        def mean(tensor: Tensor) -> Tensor:
            return tensor.mean(axes, keepdim=True)

        variance = x.var(axes, unbiased=False, keepdim=True) + layer.eps
        deviation, terms = variance.sqrt(), x.numel() // x.shape[1]
        apart, scaled = g - mean(g), (x - mean(x)) / deviation
        least, most = replay.slopes(x, axes, layer.eps)
        off = torch.maximum(most**3 - 1, 1 - least**3)
        unit = UNIT * (3 * terms + 2)
        a = (1.0 if layer.weight is None else layer.weight.detach().view(1, -1, *[1] * (x.dim() - 2))) / deviation
        b = -a * mean(g * scaled)
        loose_b = off * b.abs() + unit * a.abs() * mean((g * x).abs()) / deviation * most**3
        loose_d = unit * (most * a.abs() * mean(g.abs()) + (b.abs() + loose_b) * mean(x.abs()) / deviation)
        ee, es, ss = mean(apart * apart), mean(apart * scaled), mean(scaled * scaled)
        ye, ys, d = mean(y * apart), mean(y * scaled), mean(y)
        whole = ee * ss - es * es
        safe = whole.clamp(min=1e-12 * (ee * ss).clamp(min=1e-300))
        own_a, own_b = (ye * ss - ys * es) / safe, (ys * ee - ye * es) / safe
        slack = replay.SLACK * (a.abs() + b.abs())
        wrong = (
            ((own_a - a).abs() > off * a.abs() + slack) | ((own_b - b).abs() > loose_b + slack) | (d.abs() > loose_d)
        )
        if bool(wrong.any()):
            return
        fitted = Floors(own_a * apart + own_b * scaled + d, floor.moved, floor.own)
        axis = channel_axis(layer, y.dim())
        if judge(held.layer, 0, 0, finding.kind, SENT, theirs, fitted, finding.terms, axis).verdict == "EQUAL":
            self.explained[held.layer] = {"kind": "rounded sums", "says": replay.ROUNDED_SUMS, "rounding": True}

    def _apart_from_ties(self, held: Held, finding: Finding, theirs: Tensor, floor: Floors) -> Finding:
        """The same without the windows of a max-pool whose largest value stands in several places: any of them is right."""
        layer: Any = self.models.layers[held.layer]
        (x, *_) = (tensor.double() for tensor in held.inputs)
        if x.dim() != 4:
            return finding
        # A ramp far below float32's resolution, up or down, decides between equal values alone.
        places = x.shape[-2] * x.shape[-1]
        ramp = torch.linspace(0, 1e-10 * rms(x), places, dtype=x.dtype).view(x.shape[-2:])
        pool = nn.functional.max_pool2d
        how = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, True
        first, last = (pool(each, *how)[1].flatten(2) for each in (x - ramp, x + ramp))
        tied = (first != last).to(x.dtype)
        free = torch.zeros_like(x).flatten(2)
        for where in (first, last):
            free.scatter_add_(2, where, tied)
        # A tie of three has one place that is neither the first nor the last.
        free = ((free == 0) & ~torch.isin(x.flatten(2), x.flatten(2).gather(2, first)[tied > 0])).view_as(x)
        return judge(
            finding.layer, finding.call, finding.index, finding.kind, finding.what, theirs * free,
            Floors(floor.exact * free, floor.moved, floor.own), finding.terms, channel_axis(layer, 4),
        )  # fmt: skip


THROUGH_MAXIMUM = (
    "its cross-entropy is differentiated through the maximum that it subtracts, which leaves the rounding of a sum over all "
    "classes at the largest logit"
)


GIVEN, SENT, GRADIENT = "gradient that it is given", "gradient of its input", "gradient of"
