"""Relative perturbations of tensors and layers, by which the noise floor is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import torch
from torch import Tensor, nn

from ..frameworks._torch_parametrized import folded_weights
from ..verdict.limits import UNIT, growth
from .structures import as_float32, as_float64

# Float attributes that are not rounded: evaluation does not use them, or they determine the size of the output (see
# Models.compute_perturbed).
NOT_ROUNDED = ("momentum", "p", "scale_factor")


class Noise:
    """Relative perturbations, uniform in ±size.

    seed: seed of the random generator.
    unit: the usual size, which is the unit roundoff of the precision whose rounding is modelled.
    """

    PART = 2**20  # values that are perturbed at once

    def __init__(self, seed: int, unit: float = UNIT) -> None:
        self.unit = unit
        self.generator = torch.Generator().manual_seed(seed)
        self.pool = torch.empty(2 * self.PART, dtype=torch.float64).uniform_(-1.0, 1.0, generator=self.generator)

    def rounding(self, terms: int = 1) -> float:
        """The size of the rounding of a sum of this number of terms."""
        return self.unit * growth(terms, self.unit)

    def perturb_(self, tensor: Tensor, size: float | None = None) -> Tensor:
        """Perturb every value in place, part by part, each part by another range of the pool.

        Whole numbers stay as they are, and so do tensors without values, on which a library may build a model before it reads
        the weights of it from a file.
        """
        if tensor.is_floating_point() and not tensor.is_meta:
            flat = tensor.view(-1) if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))
            for part in flat.split(self.PART):
                start = int(torch.randint(self.PART, (1,), generator=self.generator))
                part.addcmul_(part, self.pool[start : start + part.numel()], value=self.unit if size is None else size)
        return tensor

    def perturbed(self, tensor: Tensor, size: float | None = None) -> Tensor:
        """A perturbed copy."""
        return self.perturb_(tensor.clone(memory_format=torch.contiguous_format), size)

    def factor(self, index: int, size: float) -> float:
        """The factor by which the constant of this index is perturbed; the same at every call."""
        return 1 + size * float(self.pool[index])


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
        return noise.perturbed(as_float64(tensor)) if self is Arithmetic.PERTURBED else as_float64(tensor)


@contextmanager
def perturbed_layer(layer: nn.Module, noise: Noise, size: float) -> Iterator[None]:
    """Perturb the layer's weights, buffers and constants (eps, slopes) within the context. Its own values are not written to."""
    tensors = dict(layer.named_parameters()) | dict(layer.named_buffers())
    originals = {name: tensor.data for name, tensor in tensors.items()}
    constants = {
        key: value for key, value in vars(layer).items() if isinstance(value, float) and key not in NOT_ROUNDED
    }
    for tensor in tensors.values():
        tensor.data = noise.perturb_(tensor.data.clone(), size)
    for name in folded_weights(layer):
        _perturb_norm_(tensors[name].data, noise, size)
    for index, (key, value) in enumerate(constants.items()):
        setattr(layer, key, value * noise.factor(index, size))
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
