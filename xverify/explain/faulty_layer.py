"""What a layer of the reference computes with a known fault."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..float64.stepping import Models
from ..float64.structures import flatten, map_tensors
from ..replay.tape import REFUSALS
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
