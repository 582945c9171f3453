"""Captured layers that end in an activation, which the reference computes after the layer.

``Dense(16, activation="relu")`` returns relu(layer(x)), where the reference has a linear layer and a ReLU. The layer is judged
together with the activation, and the replay continues with what the reference's own layer returns. Whether the reference applies
the same activation is therefore decided by its own code: by its next layer where that is an activation, and elsewhere by the
glue code before the next captured layer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.activations import ACTIVATIONS, Activation
from ..float64.layer_kinds import ACTIVATION_LAYERS, channel_axis, passes_through, summed_terms
from ..float64.perturbation import Noise, perturbed_layer
from ..float64.stepping import Models, Pause
from ..float64.structures import as_float32, flatten, map_tensors
from ..results.verdicts import Verdict
from ..verdict.findings import OUTPUT, Explanation, Finding
from .difference import Difference
from .tensors import Floors, Place, judge

KEPT = 4  # calls whose outputs are followed: the activation mostly comes right after its layer
CLOSE = 1e-2  # relative difference (rms); an activation that fits worse is not judged
SAME = 1e-9  # relative difference (rms) of two results in float64 that are the same


def fused_activations(layer: nn.Module, dim: int) -> dict[str, Activation]:
    """The activations in which a layer of a framework may end: name -> function. dim: number of axes of its output."""
    axis = channel_axis(layer, dim)
    return {
        **ACTIVATIONS,
        "softmax": lambda x: x.softmax(axis),
        "log-softmax": lambda x: x.log_softmax(axis),
        "softsign": nn.functional.softsign,
        "LogSigmoid": nn.functional.logsigmoid,
        "CELU": nn.functional.celu,
        "exp": torch.exp,
    }


@dataclass
class FusedLayer:
    """One captured call of a layer that ends in an activation.

    layer: name of the layer.
    activation: name of the activation that fits.
    captured: what the port's layer returned, in the reference's layout.
    results: what the reference's layer returns in each pass, before the activation: exact, perturbed, and in float32.
    finding: the comparison of the captured output with the activation of the exact one.
    forward: what the layer computes otherwise, see ``FusedLayers.in_each_pass``; None when it is right.
    """

    layer: str
    activation: str
    captured: Tensor
    results: list[Any]
    finding: Finding
    forward: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        self.exact = flatten(self.results[0])[0]
        self._version = self.exact._version

    @property
    def overwritten(self) -> bool:
        """Whether the reference computes its activation in place."""
        return self.exact._version != self._version

    def view(self, of: Tensor) -> Tensor:
        """The captured output in the shape of a view of the exact output before the activation."""
        exact = self.exact
        captured = torch.empty_strided(exact.size(), exact.stride(), dtype=torch.float64).copy_(self.captured)
        return torch.as_strided(captured, of.size(), of.stride(), of.storage_offset())

    def other_than(self, applied: str) -> Explanation:
        """The explanation that the reference applies another activation. applied: its name."""
        says = f"`{self.layer}` of the port ends in the activation {self.activation}; the reference applies {applied}"
        return Explanation("another activation", says, earlier=True)


class FusedLayers:
    """Recognises the layers that end in an activation, and follows their outputs to the activation of the reference.

    activations: layer -> the name of its activation, or of the reference's layer that computes it.
    """

    def __init__(self, models: Models, noise: Noise) -> None:
        self.models, self.noise = models, noise
        self.activations: dict[str, str] = {}
        self.recent: deque[FusedLayer] = deque(maxlen=KEPT)

    def recognised(
        self, difference: Difference, output: Tensor, args: Any, forward: Callable[..., Any] | None = None
    ) -> FusedLayer | None:
        """The call as that of a layer that ends in an activation; None when no activation fits.

        difference: the comparison of the first output with that of the layer alone.
        output: what the reference's layer returns in float64.
        args: the arguments of the call, in float64.
        forward: what the layer computes otherwise, see ``in_each_pass``.
        """
        name, captured = difference.finding.layer, difference.captured
        layer = self.models.layers[name]
        if not may_be_fused(layer, captured) or captured.shape != output.shape:
            return None
        close = {
            activation: function
            for activation, function in fused_activations(layer, output.dim()).items()
            if _difference(function(output), captured) <= CLOSE
        }
        if not close:
            return None
        results = self.in_each_pass(name, args, forward)
        judged = [(self._judge(difference, function, results), key) for key, function in close.items()]
        fitting = [(fused, key) for fused, key in judged if fused.verdict == Verdict.EQUAL]
        if not fitting:
            return None
        fused, activation = min(fitting, key=lambda pair: pair[0].ratio)
        if forward is not None:
            fused = self._judge(difference, close[activation], self.in_each_pass(name, args))
        return FusedLayer(name, activation, captured, results, fused, forward)

    def follow(self, fused: FusedLayer) -> None:
        """Follow the output of this call to the activation of the reference."""
        self.recent.append(fused)
        self.activations[fused.layer] = fused.activation

    def in_each_pass(self, name: str, args: Any, forward: Callable[..., Any] | None = None) -> list[Any]:
        """What the reference's layer returns in each pass for the captured arguments: exact, perturbed, and in float32.

        forward: takes (layer, its own forward, arguments), and is computed in place of the layer in the first two passes; the third
            is then the first in float32.
        """
        layer, float32_layer = self.models.layers[name], self.models.float32_layers[name]
        size = self.noise.rounding(summed_terms(layer, flatten(args)))

        def compute(values: Any) -> Any:
            if forward is None:
                return self.models.compute(layer, values)
            return forward(layer, self.models.forwards[layer], *values[0], **values[1])

        exact = compute(map_tensors(args, Tensor.clone))
        perturbed_args = self.models.perturbed_arguments(layer, args, self.noise, size)
        with perturbed_layer(layer, self.noise, size):
            perturbed = map_tensors(compute(perturbed_args), self.noise.rounded)
        if forward is not None:
            return [exact, perturbed, map_tensors(exact, as_float32)]
        float32_args = map_tensors(args, lambda tensor: as_float32(tensor).clone())
        return [exact, perturbed, self.models.compute(float32_layer, float32_args)]

    def _judge(self, difference: Difference, function: Activation, results: Sequence[Any]) -> Finding:
        """Compare a captured output with the activation of what the reference's layer returns in each pass."""
        layer = self.models.layers[difference.finding.layer]
        values = [function(flatten(result)[0]) for result in results]
        floors = _floors(values, layer, self.noise.unit)
        return judge(Place.of(difference.finding), difference.captured, floors, 1, difference.axis)

    # -- the activation of the reference ------------------------------------------------------------------------------

    def given_to(self, pause: Pause) -> FusedLayer | None:
        """The call whose output this layer of the reference is given, when the layer is an activation."""
        given = flatten(pause.args)
        if not given:
            return None
        call = next((call for call in reversed(self.recent) if _share_memory(call.exact, given[0])), None)
        return call if call is not None and self._is_activation(pause) else None

    def _is_activation(self, pause: Pause) -> bool:
        """Whether a layer is one of torch's activations, or computes what one of them computes, as classes of libraries do."""
        layer = self.models.layers[pause.layer]
        if isinstance(layer, ACTIVATION_LAYERS):
            return True
        if any(True for _ in layer.parameters()) or passes_through(layer):
            return False
        x = flatten(pause.args)[0].clone()
        results = flatten(self.models.compute(layer, map_tensors(pause.args, Tensor.clone)))
        return (
            len(results) == 1
            and results[0].shape == x.shape
            and any(_difference(function(x), results[0]) <= SAME for function in ACTIVATIONS.values())
        )

    def judge_activation(
        self, fused: FusedLayer, pause: Pause, view: Tensor, values: Sequence[Tensor]
    ) -> tuple[Finding, Tensor]:
        """Judge what the port's layer returned as the output of the reference's activation.

        pause: the call of the activation.
        view: the captured output as the activation was given it.
        values: what the activation returns in each pass.
        Returns the finding and the captured output.
        """
        layer = self.models.layers[pause.layer]
        place = Place(pause.layer, pause.call, 0, type(layer).__name__, OUTPUT)
        floors, captured = _floors(values, layer, self.noise.unit), view.reshape(values[0].shape)
        self.recent.remove(fused)
        self.activations[fused.layer] = pause.layer
        return judge(place, captured, floors, 1, channel_axis(layer, captured.dim())), captured

    def explain(self, captured: Tensor, exact: Tensor) -> Explanation | None:
        """Explain a wrong tensor that a layer with an activation returned, where the reference has another activation.

        captured: what the port passed on.
        exact: what the reference's glue code computes.
        """
        for call in reversed(self.recent):
            if call.captured.shape != captured.shape or not torch.equal(call.captured, captured):
                continue
            return call.other_than(self._applied(call, exact))
        return None

    def _applied(self, call: FusedLayer, exact: Tensor) -> str:
        """What the reference's glue code applies to the output of a layer. exact: the result."""
        other = "something else to it"
        if call.overwritten or call.exact.shape != exact.shape:
            return other
        if _difference(call.exact, exact) <= SAME:
            return "none to it"
        activations = fused_activations(self.models.layers[call.layer], exact.dim())
        return next(
            (name for name, function in activations.items() if _difference(function(call.exact), exact) <= SAME), other
        )

    def notes(self) -> Iterator[str]:
        """One sentence for each layer that was judged together with an activation."""
        for layer, activation in self.activations.items():
            yield (
                f"{layer} was judged together with the activation {activation} after it, because the port's layer ends in it"
            )


def may_be_fused(layer: nn.Module, captured: Tensor) -> bool:
    """Whether a layer of a framework may compute this output of the layer and an activation after it."""
    return captured.is_floating_point() and any(True for _ in layer.parameters())


def _floors(values: Sequence[Tensor], layer: nn.Module, unit: float) -> Floors:
    """The floors of an output from its values in each pass; the growth of the sums is in the perturbed one already."""
    exact, perturbed, float32 = values
    return Floors.between(exact, perturbed, float32, channel_axis(layer, exact.dim()), unit)


def _difference(tensor: Tensor, other: Tensor) -> float:
    """The relative difference (rms) of two tensors of one shape; infinite when it is not a number."""
    size = float(torch.linalg.vector_norm(tensor.double()))
    apart = float(torch.dist(tensor.double(), other.double()))
    found = apart / size if size else apart
    return found if math.isfinite(found) else math.inf


def _share_memory(tensor: Tensor, other: Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
