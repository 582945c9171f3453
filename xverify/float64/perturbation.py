"""Relative perturbations of tensors and layers, by which the noise floor is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from torch import Tensor, nn

from .parametrized import folded_weights
from .rounding import Noise as Noise  # most of its users perturb layers, too
from .structures import as_float32, as_float64

# Float attributes that are not rounded: evaluation does not use them, or they determine the size of the output (see
# Models.compute_perturbed).
NOT_ROUNDED = ("momentum", "p", "scale_factor")
# A decision, such as the best class, is determined when it is the same in DECISIONS passes with MARGIN times the usual rounding.
MARGIN, DECISIONS = 10.0, 4


class Arithmetic(Enum):
    """The arithmetic of a pass. The last two measure the noise floor of the first."""

    EXACT = "float64"
    PERTURBED = "float64, perturbed"
    FLOAT32 = "float32"

    def convert(self, tensor: Tensor, noise: Noise) -> Tensor:
        """The tensor in this arithmetic. Whole numbers stay as they are."""
        if not tensor.is_floating_point():
            return tensor
        if self is Arithmetic.FLOAT32:
            return as_float32(tensor)
        return noise.given(as_float64(tensor)) if self is Arithmetic.PERTURBED else as_float64(tensor)


@contextmanager
def perturbed_layer(layer: nn.Module, noise: Noise, size: float) -> Iterator[None]:
    """Perturb the layer's weights, buffers and constants (eps, slopes) within the context. Its own values are not written to."""
    parameters = dict(layer.named_parameters())
    tensors = parameters | dict(layer.named_buffers())
    originals = {name: tensor.data for name, tensor in tensors.items()}
    constants = {
        key: value for key, value in vars(layer).items() if isinstance(value, float) and key not in NOT_ROUNDED
    }
    for name, tensor in tensors.items():  # a buffer may be a mask
        change = noise.perturb_ if name in parameters else noise.given_
        tensor.data = change(tensor.data.clone(), size)
    for name in folded_weights(layer):
        _perturb_norm_(tensors[name].data, noise, size)
    for index, (key, value) in enumerate(constants.items()):
        setattr(layer, key, noise.constant(value, index, size))
    try:
        yield
    finally:
        for name, tensor in tensors.items():
            tensor.data = originals[name]
        for key, value in constants.items():
            setattr(layer, key, value)


def _perturb_norm_(weight: Tensor, noise: Noise, size: float) -> None:
    """Perturb a weight as the rounding of a norm does by which it was divided: each row by a factor, and all rows by another."""
    rows = weight.new_ones(weight.shape[:1] + (1,) * (weight.dim() - 1))
    weight.mul_(noise.perturbed(rows, size)).mul_(noise.perturbed(weight.new_ones(1), size))
