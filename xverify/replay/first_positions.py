"""Convolutions that return only the first positions of what the reference's return.

torch has no causal convolution: a model pads both ends of a sequence, and keeps the first positions of what the layer returns. The
causal convolution of another framework returns these alone. They are judged, and the reference's own code is given the exact values
of the others: where it leaves them out, they change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from ..float64.stepping import Models
from .padding import CONVOLUTIONS

Sizes = tuple[int, ...]  # of the spatial axes

NEAR = 0.1  # relative error (rms) of an output that is wrong, and nevertheless has these positions


def fewer(captured: Sequence[Tensor], exact: Tensor, layer: nn.Module, channels_last: bool) -> Sizes | None:
    """The spatial sizes of the only captured output, where one is smaller than the exact one's, none larger, and the rest fits."""
    if not isinstance(layer, CONVOLUTIONS) or len(captured) != 1 or exact.dim() != len(layer.kernel_size) + 2:
        return None
    whole = captured[0].movedim(-1, 1) if channels_last and captured[0].dim() == exact.dim() else captured[0]
    if whole.dim() != exact.dim() or whole.shape[:2] != exact.shape[:2]:
        return None
    sizes = tuple(whole.shape[2:])
    return sizes if all(0 < size <= more for size, more in zip(sizes, exact.shape[2:])) else None


def in_words(name: str, sizes: Sizes, whole: Sequence[int]) -> str:
    """A sentence that says which positions a port returns. whole: the sizes of the reference's output."""
    counts = " and ".join(f"{size} of {more}" for size, more in zip(sizes, whole) if size < more)
    return f"the output of {name} has the first {counts} positions of the reference's, and was compared with these"


def _first(tensor: Tensor, sizes: Sizes) -> Tensor:
    index = (..., *(slice(size) for size in sizes))
    return tensor[index]


def filled(exact: Tensor, captured: Tensor) -> Tensor:
    """The exact tensor, with the captured values in its first positions."""
    filled = exact.clone()
    _first(filled, tuple(captured.shape[2:])).copy_(captured)
    return filled


@contextmanager
def only_first(models: Models, name: str, shape: Sequence[int], sizes: Sizes) -> Iterator[None]:
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
