"""Passes of the float64 model in which everything rounds, beside that of a replay: more samples of the noise of its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from .layer_kinds import COPIES, summed_terms
from .perturbation import DECISIONS, MARGIN, Noise
from .stepping import Models, Pause, SteppingPass, completed
from .structures import as_float64, flatten, map_tensors


def perturbed_output(models: Models, noise: Noise, layer: nn.Module, args: Any, size: float) -> Any:
    """The output of a layer in a perturbed pass. size: relative size of the perturbation of its inputs and weights."""
    if isinstance(layer, COPIES):
        return models.compute(layer, args)
    # The layer gets copies, because an argument may be a weight of the model.
    copies = models.perturbed_arguments(layer, args, noise, size)
    versions = [tensor._version for tensor in flatten(copies)]
    output = map_tensors(models.compute_perturbed(layer, copies, noise, size), noise.rounded)
    for original, copy, version in zip(flatten(args), flatten(copies), versions):
        if copy._version != version:  # the layer works in place
            original.copy_(copy)
    return output


def perturbed_outputs(models: Models, inputs: Sequence[Tensor], index: int, times: float = 1.0) -> list[Tensor]:
    """The outputs of the model in one more perturbed pass. index: which one, from 1. times: multiple of the rounding."""
    noise = Noise(models.seed + index, times * models.precision.unit)
    given = [noise.given(as_float64(tensor)) for tensor in inputs]
    running = SteppingPass(models.float64_model, given, partial(models.perturbed_code, noise))

    def answer(pause: Pause) -> Any:
        layer = models.layers[pause.layer]
        size = noise.rounding(summed_terms(layer, flatten(pause.args)))
        return perturbed_output(models, noise, layer, pause.args, size)

    return models.in_order(completed(running, answer))


def decisions(models: Models, inputs: Sequence[Tensor]) -> list[list[Tensor]]:
    """The outputs in passes whose rounding is MARGIN times as large, with empty tensors in the place of floating-point ones.

    A decision that is the same in all of them, such as the best class, does not depend on rounding.
    """
    found = []
    for index in range(DECISIONS):
        outputs = perturbed_outputs(models, inputs, index, MARGIN)
        found.append([each.new_empty(0) if each.is_floating_point() else each for each in outputs])
    return found
