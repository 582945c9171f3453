"""What a layer of the reference computes with a known fault."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ...float64.stepping import Models
from ...float64.structures import flatten, map_tensors
from .faults.fault import PortFault

# Exceptions of a fault that does not fit a layer of this shape.
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, AssertionError, NotImplementedError)


def faulty_output(models: Models, layer: nn.Module, fault: PortFault, args: Any) -> Tensor | None:
    """The first output of a layer with this fault; None where the fault does not fit the layer.

    args: the arguments of the call, in float64.
    """
    positional, keyword = map_tensors(args, Tensor.clone)
    try:
        result = fault.forward(layer, models.forwards[layer], *positional, **keyword)
    except REFUSALS:
        return None
    return next(iter(flatten(result)), None)
