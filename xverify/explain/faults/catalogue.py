"""The list of faults that a layer may have, and the function that plants one of them.

The list has two uses. An explanation searches for the fault that turns the output of the reference's layer into the captured
output. A mutation plants a fault in a model and checks that the verdict detects it.

Sources: the documentation of torch, Keras and TensorFlow on defaults and conventions, and the porting faults of the
trials that ``verdict.limits`` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from . import activation, convolution, linear, normalization, pooling
from .changes import computing
from .explained import explained_only
from .fault import Faults, PortFault
from .planted import planted_only
from .recurrent import recurrent
from .rounding import rounding
from .weights import weights

# Kinds of layers, and the function that lists their faults. The order is part of the interface: see plantable_faults.
TABLE: tuple[tuple[Any, Faults], ...] = (
    (nn.modules.batchnorm._BatchNorm, normalization.batch_norm),
    (nn.LayerNorm, normalization.layer_norm),
    ((nn.GroupNorm, nn.modules.instancenorm._InstanceNorm), normalization.epsilon),
    (nn.modules.conv._ConvNd, convolution.convolution),
    (nn.Linear, linear.linear),
    (nn.MaxPool2d, pooling.max_pool),
    (nn.AvgPool2d, pooling.average_pool),
    (nn.AdaptiveAvgPool2d, pooling.adaptive_average_pool),
    (nn.Upsample, pooling.upsample),
    (nn.Softmax, activation.softmax),
    (activation.LAYERS, activation.activation),
    (nn.Embedding, linear.embedding),
    (nn.Flatten, linear.flatten),
    ((nn.Dropout, nn.Dropout2d), activation.dropout),
    (nn.Module, recurrent),  # a recurrent cell may be a class that the model defines
)


def explanatory_faults(layer: nn.Module) -> Iterator[PortFault]:
    """The faults that an explanation tries for this layer, the likelier first."""
    yield from _tabled(layer)
    yield from explained_only(layer)


def _tabled(layer: nn.Module) -> Iterator[PortFault]:
    """The faults that an explanation tries and a mutation plants."""
    for kinds, faults in TABLE:
        if isinstance(layer, kinds):
            yield from faults(layer)
    yield from weights(layer)
    yield from rounding(layer)
    yield PortFault("layer skipped", "hands on its input unchanged", computing(lambda layer, x, *more: x))


def plantable_faults(layer: nn.Module) -> list[PortFault]:
    """The faults that a mutation may plant, by index: those of the table, then those that an explanation recognises by the
    pattern of the difference.
    """
    return [*_tabled(layer), *planted_only(layer)]


def plant(layer: nn.Module, index: int) -> None:
    """Make the layer compute its fault of this index, until its attribute ``forward`` is deleted.

    index: place in ``plantable_faults``.
    """
    fault, original = plantable_faults(layer)[index], layer.forward
    object.__setattr__(layer, "forward", lambda *args, **kwargs: fault.forward(layer, original, *args, **kwargs))
