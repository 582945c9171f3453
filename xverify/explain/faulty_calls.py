"""What the reference's layer returns with a fault, for the inputs that another framework gave its own layer.

A mutation lets the other framework's layer return this. The result therefore has the layout that this framework uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import Failed
from ..float64.linear import called_by_weights, owners_of
from ..float64.replaced import hooked
from ..float64.stepping import Models
from ..float64.structures import flatten, map_tensors, unflatten
from ..replay.fused import CLOSE
from ..replay.layout import distance, every_layout, layout_at, nearest
from ..replay.tape import REFUSALS
from ..replay.tensors import Capture
from ..weights.canonical import Array
from .faults import catalogue
from .faulty_layer import faulty_outputs


def faulty_calls(
    models: Models, capture: Capture, name: str, index: int, inputs: Sequence[Tensor]
) -> dict[tuple[int, int], Array]:
    """(number of the call, place of the output) -> what the layer returns with a fault.

    capture: of the framework without a fault. name: of the layer. index: of the fault in ``catalogue.plantable_faults``.
    inputs: the inputs of the captured pass.
    Raises Failed when the framework's layer computes something else than the reference's, or when the fault does not fit.
    """
    layer, found, calls = models.float32_layers[name], dict[tuple[int, int], Array](), 0

    def note(_layer: nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal calls
        files = capture.records.get((name, calls))
        if files is not None and files.outputs:
            given = _given(capture, files.inputs, layer, (args, kwargs))
            outputs = [capture.load(file) for file in files.outputs]
            right = flatten(models.compute(layer, map_tensors(given, Tensor.clone)))
            try:
                wrong = faulty_outputs(models, layer, catalogue.plantable_faults(layer)[index], given)
            except REFUSALS as error:
                raise Failed(f"the fault does not fit the layer: {error}") from None
            for place, array in enumerate(_as_captured(outputs, right, wrong, layer, capture.channels_last)):
                found[calls, place] = array
        calls += 1

    noting = hooked([layer.register_forward_pre_hook(note, with_kwargs=True)])
    with noting, torch.no_grad(), called_by_weights(owners_of(models.float32_model)):
        models.float32_model(*inputs)
    if not found:
        raise Failed(f"no call of {name} could be captured")
    return found


def _given(capture: Capture, files: Sequence[str], layer: nn.Module, args: Any) -> Any:
    """The arguments of the reference with the tensors that the framework gave its layer. A tensor that was not captured stays."""
    remaining, given = [capture.load(file) for file in files], list[Tensor]()
    for tensor in flatten(args):
        fitting = nearest(remaining, tensor, layer, capture.channels_last)
        if fitting is not None:
            remaining = [each for each in remaining if each is not fitting[0]]
        given.append(tensor.clone() if fitting is None else fitting[1].to(tensor.dtype))
    return unflatten(args, given)


def _as_captured(
    captured: Sequence[Tensor], right: Sequence[Tensor], wrong: Sequence[Tensor], layer: nn.Module, channels_last: bool
) -> list[Array]:
    """The wrong outputs in the places and in the layout of the captured ones.

    captured: the outputs of the framework's layer. right, wrong: the outputs of the reference's, without and with the fault.
    """
    found = []
    for tensor in captured:
        choices = [
            (distance(turned, exact), which, place)
            for which, exact in enumerate(right)
            for place, turned in enumerate(every_layout(tensor, exact.shape, layer, channels_last))
        ]
        apart, which, place = min(choices, default=(0.0, None, 0))
        if (
            which is None
            or which >= len(wrong)
            or apart > CLOSE * float(torch.linalg.vector_norm(right[which].double()))
        ):
            raise Failed(
                "the layer of the port computes something else than the reference's, for example an activation, too"
            )
        found.append(_in_layout(wrong[which], tensor, right[which].shape, layer, channels_last, place).numpy())
    return found


def _in_layout(
    wrong: Tensor, captured: Tensor, shape: Sequence[int], layer: nn.Module, channels_last: bool, place: int
) -> Tensor:
    """A wrong output in the layout of the captured tensor. shape: of the right output. place: of the layout in ``every_layout``."""
    if tuple(wrong.shape) == tuple(shape):
        order = torch.arange(captured.numel()).reshape(captured.shape)
        native = torch.empty(captured.numel(), dtype=captured.dtype)
        native[layout_at(place, order, shape, layer, channels_last).flatten()] = wrong.flatten().to(captured.dtype)
        return native.reshape(captured.shape)
    # The fault changes the size of the image.
    images = channels_last and captured.dim() > 2 and tuple(captured.movedim(-1, 1).shape) == tuple(shape)
    return wrong.movedim(1, -1).contiguous() if images and wrong.dim() == captured.dim() else wrong.contiguous()
