"""Convolutions that return only the first positions of what the reference's return.

torch has no causal convolution: a model pads both ends of a sequence, and keeps the first positions of what the layer returns. The
causal convolution of another framework returns these alone. They are judged, and the reference's own code is given the exact values
of the others: where it leaves them out, they change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..float64.stepping import Models, Pause
from ..float64.structures import flatten
from ..framework.capture import LayerCall
from ..results.verdicts import Verdict
from .fused import FusedLayer, fused_activations
from .inputs import Given
from .padding import CONVOLUTIONS

if TYPE_CHECKING:
    from .forward import Compared, Replay

Sizes = tuple[int, ...]  # of the spatial axes

NEAR = 0.1  # relative error (rms) of an output that is wrong, and nevertheless has these positions


def compare_first(
    replay: Replay, pause: Pause, files: LayerCall, given: Given, args: Any, result: Any
) -> Compared | None:
    """Compare the first positions of a convolution's output with those that were captured.

    args: of the call, in float64. result: the exact output of the reference's layer.
    Returns None where the captured output has not these positions, as far as its shape and values tell.
    """
    name, exact = pause.layer, flatten(result)[0]
    layer = replay.models.layers[name]
    sizes = _fewer(replay.capture.load_all(files.outputs), exact, layer, replay.capture.channels_last)
    if sizes is None:
        return None
    with _only_first(replay.models, name, exact.shape, sizes):
        found = replay.compare_outputs(pause, files, given)
    if found is None or not _are_first(replay, found, name, given):
        return None
    replay.first_positions[name] = _says(name, sizes, exact.shape[2:])
    fused = found.fused and _whole(replay, found.fused, args)
    return replace(found, result=result, outputs=[_filled(exact, found.outputs[0])], files=[""], fused=fused)


def _fewer(captured: Sequence[Tensor], exact: Tensor, layer: nn.Module, channels_last: bool) -> Sizes | None:
    """The spatial sizes of the only captured output, where one is smaller than the exact one's, none larger, and the rest fits."""
    if not isinstance(layer, CONVOLUTIONS) or len(captured) != 1 or exact.dim() != len(layer.kernel_size) + 2:
        return None
    whole = captured[0].movedim(-1, 1) if channels_last and captured[0].dim() == exact.dim() else captured[0]
    if whole.dim() != exact.dim() or whole.shape[:2] != exact.shape[:2]:
        return None
    sizes = tuple(whole.shape[2:])
    return sizes if all(0 < size <= more for size, more in zip(sizes, exact.shape[2:])) else None


def _are_first(replay: Replay, found: Compared, name: str, given: Given) -> bool:
    """Whether the captured values are these positions: right ones, or wrong ones of a layer that fits otherwise."""
    finding = found.findings[0]
    if finding.verdict == Verdict.EQUAL or found.fused is not None:
        return True
    return not given.joined and (name in replay.explainer.explained or (finding.rel_rms or 1.0) < NEAR)


def _says(name: str, sizes: Sizes, whole: Sequence[int]) -> str:
    counts = " and ".join(f"{size} of {more}" for size, more in zip(sizes, whole) if size < more)
    return f"the output of {name} has the first {counts} positions of the reference's, and was compared with these"


def _first(tensor: Tensor, sizes: Sizes) -> Tensor:
    index = (..., *(slice(size) for size in sizes))
    return tensor[index]


def _filled(exact: Tensor, captured: Tensor) -> Tensor:
    """The exact tensor, with the captured values in its first positions."""
    filled = exact.clone()
    _first(filled, tuple(captured.shape[2:])).copy_(captured)
    return filled


def _whole(replay: Replay, fused: FusedLayer, args: Any) -> FusedLayer:
    """A call of a layer that ends in an activation with all positions. args: of the call, in float64."""
    results = replay.fused.in_each_pass(fused.layer, args, fused.fault)
    exact = flatten(results[0])[0]
    activation = fused_activations(replay.models.layers[fused.layer], exact.dim())[fused.activation]
    return replace(fused, captured=_filled(activation(exact), fused.captured), results=results)


@contextmanager
def _only_first(models: Models, name: str, shape: Sequence[int], sizes: Sizes) -> Iterator[None]:
    """The layer returns only its first positions within the context. shape: of what it returns elsewhere."""
    layers = (models.layers[name], models.float32_layers[name])
    originals = [models.forwards[layer] for layer in layers]

    def cut(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(*args: Any, **kwargs: Any) -> Tensor:
            output = forward(*args, **kwargs)
            if output.shape[1:] != shape[1:]:  # a fault that makes another shape is no fault of these positions
                raise ValueError(f"the output has shape {tuple(output.shape)}")
            return _first(output, sizes).contiguous()

        return run

    models.forwards.update({layer: cut(forward) for layer, forward in zip(layers, originals)})
    try:
        yield
    finally:
        models.forwards.update(zip(layers, originals))
