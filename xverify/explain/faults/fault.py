"""The record of one way in which a port may compute a layer differently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

Forward = Callable[..., Any]  # Any: a layer may take and return any values


@dataclass(frozen=True)
class PortFault:
    """One way in which another framework, or the author of a port, computes a layer differently.

    kind: name of the fault. Faults of the same kind differ only in a value.
    says: one clause for the report, which completes "this layer ...".
    forward: takes (layer, its own forward, arguments of the call) and returns what the faulty layer returns. It
        computes in the dtype of the layer, and leaves the layer as it was.
    rounding: whether the layer is right but computes in another precision.
    """

    kind: str
    says: str
    forward: Forward
    rounding: bool = False


# Lists the faults that a layer may have. The layer is typed Any where a file reads attributes of one class of layers.
Faults = Callable[[Any], Iterator[PortFault]]


def is_custom(layer: nn.Module) -> bool:
    """Whether the model itself defines the class of the layer."""
    return type(layer).__module__.split(".")[0] != "torch"
