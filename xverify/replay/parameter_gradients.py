"""The gradients of parameters in a backward replay: each is the sum over all calls of its layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..float64.parametrized import layer_and_weight
from ..verdict.findings import GRADIENT_OF, Finding
from ..verdict.limits import UNIT, growth
from ..weights.canonical import Array
from .tensors import Floors, Place, judge, known_noise, mean_squares, rms


@dataclass
class _Sum:
    """The exact gradient of a parameter, and its noise floor.

    kind: class of the layer.
    perturbation, float32_error: the rms of the noise of each value, float32.
    terms: length of the sums behind one value.
    unit: unit roundoff of the precision in which it is computed.
    """

    kind: str
    exact: Tensor
    perturbation: Tensor
    float32_error: Tensor
    terms: int
    unit: float


class ParameterGradients:
    """Sums the gradients of the parameters of all layers, and judges the captured ones."""

    def __init__(self, model: nn.Module) -> None:
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.sums: dict[str, _Sum] = {}

    def add(
        self,
        layer: nn.Module,
        exact: Sequence[Tensor | None],
        perturbed: Sequence[Tensor | None],
        float32: Sequence[Tensor | None],
        upstream: Tensor,
        unit: float,
    ) -> None:
        """Add the gradients of one call.

        exact, perturbed, float32: gradient of each parameter of the layer, in its order; None where the call does not use it.
        upstream: the gradient of the layer's output.
        unit: unit roundoff of the precision of the layer.
        """
        for parameter, g, g_perturbed, g_float32 in zip(layer.parameters(), exact, perturbed, float32):
            if g is None or g_perturbed is None or g_float32 is None:
                continue
            # Every value of the gradient sums over all places where its parameter was used.
            terms = max(1, upstream.numel() // max(1, parameter.shape[0]))
            name = self.names[id(parameter)]
            if name in self.sums:
                self._add(self.sums[name], g, g_perturbed, g_float32, terms)
                continue
            perturbation, error = ((each - g).abs().float() for each in (g_perturbed, g_float32))
            self.sums[name] = _Sum(type(layer).__name__, g.clone(), perturbation, error, terms, unit)

    def add_glue(
        self, exact: Mapping[str, Tensor], perturbed: Mapping[str, Tensor], float32: Mapping[str, Tensor]
    ) -> None:
        """Add the parts of the gradients that come from glue code, as a head has that uses the weight of an embedding.

        exact, perturbed, float32: parameter -> its gradient in each pass.
        """
        for name in exact.keys() & perturbed.keys() & float32.keys() & self.sums.keys():
            self._add(self.sums[name], exact[name], perturbed[name], float32[name], 0)

    @staticmethod
    def _add(total: _Sum, g: Tensor, g_perturbed: Tensor, g_float32: Tensor, terms: int) -> None:
        """Add a part of a gradient to the others. The arguments are those of ``add``, of one parameter."""
        total.exact += g
        total.perturbation = torch.hypot(total.perturbation, (g_perturbed - g).abs().float())
        total.float32_error = torch.hypot(total.float32_error, (g_float32 - g).abs().float())
        total.terms += terms

    def judge(self, captured: Mapping[str, Array]) -> Iterator[Finding]:
        """Judge the captured gradients of parameters."""
        for name, total in self.sums.items():
            if name not in captured:
                continue
            gradient, exact = torch.from_numpy(captured[name]), total.exact
            perturbation, error = total.perturbation, total.float32_error
            unit = total.unit
            if exact.dim() == 1:  # the floor of a single value varies too much, so all values are one channel
                exact, gradient = exact[None], gradient[None]
                perturbation, error = (torch.full_like(each[None], rms(each)) for each in (perturbation, error))
                if unit > UNIT:  # a plain sum, which some frameworks compute in the lower precision itself
                    unit, perturbation = unit * growth(total.terms), perturbation * growth(total.terms)
            layer, suffix = layer_and_weight(name)
            place = Place(layer, 0, 0, total.kind, f"{GRADIENT_OF} {suffix}")
            squares = mean_squares(perturbation, 0), mean_squares(error, 0)
            noise = known_noise(perturbation), known_noise(error)
            yield judge(place, gradient, Floors(exact, *squares, unit=unit, noise=noise), total.terms, 0)
