"""The loss of a training step in a framework: named losses, or the function ``loss`` of a model file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import Failed
from ..workload.losses import Objective
from .runner import Source
from .structures import is_tensor, named_outputs
from .trains import Trains

NOT_DIFFERENTIABLE = (
    "the loss has no gradient: it is not computed from the outputs by operations that the framework can differentiate (detach, "
    "stop_gradient, argmax, numpy and item() end the gradient)"
)
LossFunction = Callable[[Any, Mapping[str, Any]], Any]


def loss_function(
    framework: Trains, source: Source, objective: Objective, outputs: Mapping[str, str | None]
) -> LossFunction:
    """The loss as a function of the model's outputs and native targets.

    source: where the model file is. outputs: name -> layout.
    """
    if objective.own:
        return _own(source, list(outputs))
    axes = {name: class_axis(layout, framework.channels_last) for name, layout in outputs.items()}

    def total(found: Any, targets: Mapping[str, Any]) -> Any:
        named = named_outputs(found, list(outputs))
        known = {**named, **targets}
        value: Any = None
        for term in objective.terms:
            x, t, lengths = named[term.output], known[term.target], known.get(term.lengths)
            part = framework.loss_value(term, x, t, axes[term.output], lengths)
            part = part if term.weight == 1 else term.weight * part
            value = part if value is None else value + part
        return value

    return total


def class_axis(layout: str | None, channels_last: bool) -> int:
    """The axis of the classes of a native output. layout: its canonical axes. channels_last: see Framework."""
    if layout is None or layout.count("C") != 1 or (channels_last and not layout.startswith("C")):
        return -1
    return layout.index("C") - len(layout)


def _own(source: Source, names: list[str]) -> LossFunction:
    """The function ``loss`` of the model file."""
    file = source.title
    function = getattr(source.load(), "loss", None)
    if not callable(function):
        raise Failed(
            f"{source.folder / file} defines a name loss that is no function: write def loss(outputs, targets)"
        )

    def own(found: Any, targets: Mapping[str, Any]) -> Any:
        value = function(named_outputs(found, names), dict(targets))
        if not is_tensor(value):
            raise Failed(
                f"loss(outputs, targets) of {file} returns a {type(value).__name__}: it must return a tensor of one value, "
                "which the framework can differentiate"
            )
        shape = tuple(int(size) for size in value.shape)
        if math.prod(shape) != 1:
            raise Failed(
                f"loss(outputs, targets) of {file} returns a tensor of shape {shape}: a training step needs one number, such as "
                "the mean or the sum of its values"
            )
        return value

    return own
