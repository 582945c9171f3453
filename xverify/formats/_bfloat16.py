"""bfloat16 in numpy, which lacks it: the upper half of the bits of a float32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xverify.framework.adapter import Array


@dataclass(frozen=True)
class Bits:
    """A tensor of bfloat16. bits: an array of uint16."""

    bits: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bits.shape

    @property
    def dtype(self) -> str:
        return "bfloat16"

    def as_float32(self) -> Array:
        """The values, exactly."""
        wide: Array = (self.bits.astype(np.uint32) << 16).view(np.float32)
        return wide


def to_bits(array: Array) -> Array:
    """Round float32 to bfloat16, half to even: an array of uint16. NaN stays NaN."""
    bits = np.ascontiguousarray(array, np.float32).reshape(np.shape(array)).view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)
