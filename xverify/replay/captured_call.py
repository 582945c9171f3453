"""One captured call of a layer in a training step: its tensors and their gradients in the layout of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.stepping import Models
from ..float64.structures import as_float32, as_float64, flatten, map_tensors, unflatten
from .layout import fitting, layout_at
from .tensors import Capture


@dataclass
class CapturedCall:
    """One captured call; all tensors are in the layout of the reference.

    layer: name of the layer.
    call: number of the call, from 0.
    args: the arguments of the reference; only their structure is used.
    result: what the layer returns, as a structure of empty tensors.
    inputs, outputs: tensors that the layer took and returned.
    upstream: gradient of each output, which is passed to the layer; None where it was not captured.
    input_gradients: gradient of each input, which the layer computes; None where it was not captured.
    """

    layer: str
    call: int
    args: Any
    result: Any
    inputs: list[Tensor]
    outputs: list[Tensor]
    upstream: list[Tensor | None]
    input_gradients: list[Tensor | None]


def captured_call(models: Models, capture: Capture, name: str, call: int, args: Any) -> CapturedCall | None:
    """A captured call of a layer; None when it was not captured, or was captured in a layout that does not fit.

    args: the arguments of the reference for the same call.
    """
    files = capture.records.get((name, call))
    if files is None or not files.outputs or not any(files.output_gradients):
        return None
    layer, reference = models.layers[name], flatten(args)
    found = _match(capture, files.inputs, files.input_gradients, reference, layer)
    if any(tensor is None and exact.is_floating_point() for (tensor, _), exact in zip(found, reference)):
        return None
    inputs = [exact.detach() if tensor is None else tensor for (tensor, _), exact in zip(found, reference)]
    result = _result(models.float32_layers[name], models, args, [as_float32(tensor).clone() for tensor in inputs])
    matched = _match(capture, files.outputs, files.output_gradients, flatten(result), layer)
    if matched[0][0] is None:
        return None
    outputs = [tensor for tensor, _ in matched if tensor is not None]
    if len(outputs) < len(matched):  # the framework does not return a state that the reference returns
        result64 = _result(layer, models, args, [as_float64(tensor).clone() for tensor in inputs])
        outputs = [exact if tensor is None else tensor for (tensor, _), exact in zip(matched, flatten(result64))]
    empty = map_tensors(result, lambda tensor: tensor.new_empty(0))
    upstream, input_gradients = ([gradient for _, gradient in pairs] for pairs in (matched, found))
    return CapturedCall(name, call, args, empty, inputs, outputs, upstream, input_gradients)


def _result(layer: nn.Module, models: Models, args: Any, inputs: list[Tensor]) -> Any:
    with torch.no_grad():
        return models.compute(layer, unflatten(args, inputs))


def _match(
    capture: Capture,
    files: Sequence[str],
    gradients: Sequence[str | None],
    reference: Sequence[Tensor],
    layer: nn.Module,
) -> list[tuple[Tensor | None, Tensor | None]]:
    """For each tensor of the reference the captured tensor that corresponds to it, and its gradient; None where there is none.

    reference: values near the captured ones; float32 is precise enough to assign the tensors to each other.
    """
    remaining = [(capture.load(file), gradient) for file, gradient in zip(files, gradients)]
    found: list[tuple[Tensor | None, Tensor | None]] = []
    for tensor in reference:
        same_kind = [each for each in remaining if each[0].is_floating_point() == tensor.is_floating_point()]
        choice = fitting([each for each, _ in same_kind], tensor.detach(), layer, capture.channels_last)
        if choice is None:
            found.append((None, None))
            continue
        captured, file = same_kind[choice.which]
        remaining = [each for each in remaining if each[0] is not captured]
        gradient = None
        if file is not None:
            gradient = layout_at(choice.place, capture.load(file), tensor.shape, layer, capture.channels_last)
        found.append((choice.tensor, gradient))
    return found
