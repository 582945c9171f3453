"""Convolutions that return a part of the positions of what the reference's return.

torch has no causal convolution: a model pads both ends of a sequence, and keeps the first positions of what the layer returns. The
causal convolution of another framework returns these alone. They are judged, and the reference's own code is given the exact values
of the others: where it leaves them out, they change nothing. A part that is not the first one is assumed only where the reference
leaves out the others.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.activations import Activation
from ..float64.linear import called_by_weights, owners_of
from ..float64.replaced import hooked
from ..float64.stepping import Models
from ..float64.structures import as_float32, flatten
from .layout import distance

Sizes = tuple[int, ...]  # of the spatial axes

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NEAR = 0.1  # relative error (rms) of an output that is wrong, and nevertheless has these positions
MOST_PARTS = 64  # parts of one output that are tried
UNCHANGED = 1e-5  # relative difference of outputs that is rounding


@dataclass(frozen=True)
class Part:
    """Positions of the output of a convolution, as starts and sizes on its spatial axes."""

    starts: Sizes
    sizes: Sizes

    @property
    def first(self) -> bool:
        """Whether these are the first positions."""
        return not any(self.starts)

    def of(self, tensor: Tensor) -> Tensor:
        """A view of these positions of an output."""
        index = (..., *(slice(start, start + size) for start, size in zip(self.starts, self.sizes)))
        return tensor[index]

    def filled(self, exact: Tensor, captured: Tensor) -> Tensor:
        """The exact tensor, with the captured values in these positions."""
        filled = exact.clone()
        self.of(filled).copy_(captured)
        return filled

    def in_words(self, name: str, whole: Sequence[int]) -> str:
        """A sentence that says which positions a port returns. whole: the sizes of the reference's output."""
        sides = [each for each in zip(self.starts, self.sizes, whole) if each[1] < each[2]]
        if self.first:
            which = (
                f"the first {' and '.join(f'{size} of {more}' for _, size, more in sides)} positions of the reference's"
            )
        else:
            ranges = (f"{start} to {start + size - 1} of {more}" for start, size, more in sides)
            which = f"the positions {' and '.join(ranges)} of the reference's, counted from 0"
        return f"the output of {name} has {which}, and was compared with these"


def part_of(
    captured: Sequence[Tensor],
    exact: Tensor,
    layer: nn.Module,
    channels_last: bool,
    activations: Mapping[str, Activation],
) -> Part | None:
    """The positions that the only captured output has, where it is smaller than the exact one on some axis, and larger on none.

    activations: in which the layer of the port may end. The values decide between the parts of this size.
    """
    if not isinstance(layer, CONVOLUTIONS) or len(captured) != 1 or exact.dim() != len(layer.kernel_size) + 2:
        return None
    whole = captured[0].movedim(-1, 1) if channels_last and captured[0].dim() == exact.dim() else captured[0]
    if whole.dim() != exact.dim() or whole.shape[:2] != exact.shape[:2]:
        return None
    sizes = tuple(whole.shape[2:])
    if not all(0 < size <= more for size, more in zip(sizes, exact.shape[2:])):
        return None
    ranges = [range(more - size + 1) for size, more in zip(sizes, exact.shape[2:])]
    parts = [Part(starts, sizes) for starts in itertools.islice(itertools.product(*ranges), MOST_PARTS)]
    apart = dict.fromkeys(parts, math.inf)
    for function in (lambda x: x, *activations.values()):
        value = function(exact)
        apart |= {part: min(found, distance(whole, part.of(value))) for part, found in apart.items()}
    return min(apart, key=apart.__getitem__)


@contextmanager
def only_part(models: Models, name: str, shape: Sequence[int], part: Part) -> Iterator[None]:
    """The layer returns only these positions within the context. shape: of what it returns elsewhere."""
    layers = (models.layers[name], models.float32_layers[name])
    originals = [models.forwards[layer] for layer in layers]

    def cut(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(*args: Any, **kwargs: Any) -> Tensor:
            output = forward(*args, **kwargs)
            if output.shape[1:] != shape[1:]:  # a fault that makes another shape is no fault of these positions
                raise ValueError(f"the output has shape {tuple(output.shape)}")
            return part.of(output).contiguous()

        return run

    models.forwards.update({layer: cut(forward) for layer, forward in zip(layers, originals)})
    try:
        yield
    finally:
        models.forwards.update(zip(layers, originals))


class UsedPositions:
    """Tells which positions of a convolution's output the reference uses.

    inputs: returns the inputs of the replayed pass.
    """

    def __init__(self, models: Models, inputs: Callable[[], Sequence[Tensor]]) -> None:
        self.models, self.inputs = models, inputs
        self.only = cache(self._only)

    def _only(self, name: str, call: int, part: Part) -> bool:
        """Whether the outputs of the model depend on no other positions of this call of a layer."""
        calls: Counter[str] = Counter()

        def change(_layer: nn.Module, _args: Any, output: Tensor) -> Tensor | None:
            calls[name] += 1
            return part.filled(2 * output + 1, part.of(output)) if calls[name] == call + 1 else None

        usual = self._outputs()
        with hooked([self.models.float32_layers[name].register_forward_hook(change)]):
            changed = self._outputs()
        return all(
            mine.shape == other.shape and distance(mine, other) <= UNCHANGED * float(other.double().norm())
            for mine, other in zip(changed, usual)
        )

    def _outputs(self) -> list[Tensor]:
        """The outputs of the float32 model."""
        model = self.models.float32_model
        with torch.no_grad(), called_by_weights(owners_of(model)):
            return flatten(model(*(as_float32(tensor).clone() for tensor in self.inputs())))
