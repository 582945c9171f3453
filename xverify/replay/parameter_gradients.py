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

Gradients = Sequence[Tensor | None]


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

    def add(self, gradients: Sequence[Tensor], terms: int) -> None:
        """Add a part of the gradient: of the exact, the perturbed and the float32 pass. terms: length of its sums."""
        perturbation, error = _noise(gradients)
        self.exact += gradients[0]
        self.perturbation = torch.hypot(self.perturbation, perturbation)
        self.add_error(error)
        self.terms += terms

    def add_error(self, error: Tensor) -> None:
        """Add an error of computing in float32 that the other parts do not have."""
        self.float32_error = torch.hypot(self.float32_error, error.float())


def _noise(gradients: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The change under perturbation, and the error in float32."""
    exact, perturbed, float32 = gradients
    return (perturbed - exact).abs().float(), (float32 - exact).abs().float()


class ParameterGradients:
    """Sums the gradients of the parameters of all layers, and judges the captured ones."""

    def __init__(self, model: nn.Module) -> None:
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.sums: dict[str, _Sum] = {}

    def add(
        self,
        layer: nn.Module,
        gradients: Sequence[Gradients],
        upstream: Tensor,
        unit: float,
        sums: Mapping[str, Tensor],
    ) -> None:
        """Add the gradients of one call.

        gradients: of the exact, the perturbed and the float32 pass, each of the parameters of the layer in their order; None where
            the call does not use one.
        upstream: the gradient of the layer's output.
        unit: unit roundoff of the precision of the layer.
        sums: see ``rounding_of_sums``.
        """
        for (own, parameter), *values in zip(layer.named_parameters(), *gradients):
            found = [each for each in values if each is not None]
            if len(found) < len(values):
                continue
            # Every value of the gradient sums over all places where its parameter was used.
            terms = max(1, upstream.numel() // max(1, parameter.shape[0]))
            name = self.names[id(parameter)]
            if name in self.sums:
                self.sums[name].add(found, terms)
            else:
                exact, perturbation, error = found[0].clone(), *_noise(found)
                self.sums[name] = _Sum(type(layer).__name__, exact, perturbation, error, terms, unit)
            if own in sums:
                self.sums[name].add_error(sums[own])

    def add_glue(self, passes: Sequence[Mapping[str, Tensor]]) -> None:
        """Add the parts of the gradients that come from glue code, as a head has that uses the weight of an embedding.

        passes: parameter -> its gradient, in the exact, the perturbed and the float32 pass.
        """
        for name, total in self.sums.items():
            if all(name in each for each in passes):
                total.add([each[name] for each in passes], 0)

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
