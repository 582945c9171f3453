"""Relative perturbations of tensors and layers, by which the noise floor is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import torch
from torch import Tensor, nn

from ..verdict.limits import UNIT
from .structures import as_float32, as_float64

# Float attributes that are not rounded: evaluation does not use them, or they determine the size of the output (see
# Models.compute_perturbed).
NOT_ROUNDED = ("momentum", "p", "scale_factor")


class Noise:
    """Relative perturbations, uniform in ±size; they are those of rounding to float32 when the size is UNIT.

    seed: seed of the random generator.
    """

    PART = 2**20  # values that are perturbed at once

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.pool = torch.empty(2 * self.PART, dtype=torch.float64).uniform_(-1.0, 1.0, generator=self.generator)

    def perturb_(self, tensor: Tensor, size: float = UNIT) -> Tensor:
        """Perturb every value in place, part by part, each part by another range of the pool. Whole numbers stay as they are."""
        if tensor.is_floating_point():
            flat = tensor.view(-1) if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))
            for part in flat.split(self.PART):
                start = int(torch.randint(self.PART, (1,), generator=self.generator))
                part.addcmul_(part, self.pool[start : start + part.numel()], value=size)
        return tensor

    def perturbed(self, tensor: Tensor, size: float = UNIT) -> Tensor:
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


def saved_values(layer: nn.Module, float32_layer: nn.Module) -> dict[str, Tensor]:
    """The right value of each weight and buffer of a float64 layer.

    float32_layer: a layer with the same weights, which are not copied. A buffer that is no weight is more exact in float64.
    """
    right = dict(float32_layer.named_parameters(recurse=False)) | dict(float32_layer.named_buffers(recurse=False))
    tables = layer._non_persistent_buffers_set
    return right | {name: value.clone() for name, value in layer.named_buffers(recurse=False) if name in tables}


@contextmanager
def perturbed_layer(layer: nn.Module, float32_layer: nn.Module, noise: Noise, size: float) -> Iterator[None]:
    """Perturb the layer's weights, buffers and constants (eps, slopes) within the context.

    float32_layer: a layer with the same weights, from which the weights are restored at the end.
    """
    tensors = dict(layer.named_parameters(recurse=False)) | dict(layer.named_buffers(recurse=False))
    originals = saved_values(layer, float32_layer)
    constants = {
        key: value for key, value in vars(layer).items() if isinstance(value, float) and key not in NOT_ROUNDED
    }
    for tensor in tensors.values():
        noise.perturb_(tensor.data, size)
    for index, (key, value) in enumerate(constants.items()):
        setattr(layer, key, value * noise.factor(index, size))
    try:
        yield
    finally:
        for name, tensor in tensors.items():
            tensor.data.copy_(originals[name].data)
        for key, value in constants.items():
            setattr(layer, key, value)
