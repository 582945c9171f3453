"""What a layer of the reference computes with a known fault."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..float64.perturbation import Noise
from ..float64.stepping import Models
from ..float64.structures import as_float32, flatten, map_tensors
from ..replay.tape import REFUSALS
from ..replay.tensors import Floors
from .faults.fault import PortFault


def faulty_outputs(models: Models, layer: nn.Module, fault: PortFault, args: Any) -> list[Tensor]:
    """The outputs of a layer with this fault. args: (positional, keyword) arguments of the call, which stay as they are."""
    positional, keyword = map_tensors(args, Tensor.clone)
    return flatten(fault.forward(layer, models.forwards[layer], *positional, **keyword))


def faulty_output(models: Models, layer: nn.Module, fault: PortFault, args: Any) -> Tensor | None:
    """The first output of a layer with this fault; None where the fault does not fit the layer."""
    try:
        return next(iter(faulty_outputs(models, layer, fault, args)), None)
    except REFUSALS:
        return None


def faulty_floors(
    models: Models, name: str, fault: PortFault, args: Any, output: Tensor, axis: int, unit: float
) -> Floors:
    """The first output of a layer with this fault, with the noise floor of that computation on perturbed and float32 arguments.

    The floor of the layer itself does not serve where the layer is exact and the fault rounds, as GELU in the place of ReLU does.

    output: the output of the layer with the fault. axis: axis of its channels. unit: unit roundoff of the layer's precision.
    """
    noise = Noise(models.seed, unit)
    perturbed_args = models.perturbed_arguments(models.layers[name], args, noise, unit)
    perturbed = faulty_output(models, models.layers[name], fault, perturbed_args)
    with models.precision.autocast(unit):
        own = faulty_output(models, models.float32_layers[name], fault, map_tensors(args, as_float32))
    return Floors.between(output, perturbed, own, axis, unit)
