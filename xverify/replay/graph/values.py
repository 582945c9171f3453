"""The values that flow through a graph: arrays, sequences of arrays, and None for an optional value that is missing.

Arrays are numpy's. Every type of number that ONNX has is a numpy type; torch computes on the same memory where that is faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor

from ...verdict.limits import UNIT

BFLOAT16 = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16))
# Unit roundoff of the types in which networks compute, and the largest number of each. Types of 8 bits and fewer store
# quantised values; they stay as they are.
UNITS = {np.dtype(np.float32): UNIT, np.dtype(np.float16): 2.0**-11, BFLOAT16: 2.0**-8, np.dtype(np.float64): 2.0**-53}
UNITS[np.dtype(np.float32)] = UNIT  # where this version of onnx keeps bfloat16 in float32
# The largest number of a type, and the smallest one that is rounded to infinity.
LARGEST = {np.dtype(np.float16): 65504.0, np.dtype(np.float32): float(np.finfo(np.float32).max)}
NEAR = 4.0  # units of roundoff from the end of a range within which rounding decides whether a value is infinite
INFINITE = {np.dtype(np.float16): 65520.0, np.dtype(np.float32): 2.0**128 - 2.0**103}

Named = dict[str, Any]  # data by name, see Data
Data = Any  # numpy array, list of numpy arrays (a sequence), or None


@dataclass(frozen=True)
class Value:
    """One value of a graph in every pass of an evaluation.

    by_pass: the value in each pass. Passes whose values cannot differ share one object.
    dtype: type of the numbers that the file declares; None for a missing value or an empty sequence.
    """

    by_pass: tuple[Data, ...]
    dtype: np.dtype[Any] | None

    @property
    def exact(self) -> Data:
        """The value in the first pass, which is the exact one."""
        return self.by_pass[0]

    @property
    def is_float(self) -> bool:
        """Whether the file declares a type in which networks compute."""
        return self.dtype in UNITS


def exact_of(values: Sequence[Value | None]) -> list[Data]:
    """The exact data of values; None for those that are left out."""
    return [None if value is None else value.exact for value in values]


def is_float(data: Data) -> bool:
    """Whether this is an array of a type in which networks compute."""
    return isinstance(data, np.ndarray) and data.dtype in UNITS


def element_type(number: int) -> np.dtype[Any]:
    """The numpy type of a type of numbers in a file."""
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))


def dtype_of(data: Data) -> np.dtype[Any] | None:
    """The type of an array, or of the items of a sequence."""
    if isinstance(data, (list, tuple)):
        return dtype_of(data[0]) if data else None
    return None if data is None else np.asarray(data).dtype


def convert(data: Data, dtype: Any) -> Data:
    """Floating-point arrays in this type; everything else as it is."""
    if isinstance(data, (list, tuple)):
        return [convert(item, dtype) for item in data]
    return data.astype(dtype, copy=False) if is_float(data) else data


def unit_roundoff(dtype: np.dtype[Any] | None) -> float:
    """Half the distance from 1 to the next larger number of this type; 0 for types of whole numbers."""
    return 0.0 if dtype is None else UNITS.get(dtype, 0.0)


def coarsest(values: Sequence[Value | None]) -> float:
    """The largest unit roundoff of the types of these values."""
    return max((unit_roundoff(value.dtype) for value in values if value is not None), default=0.0)


def in_range(exact: Tensor, dtype: np.dtype[Any] | None, found: Tensor | None = None) -> Tensor:
    """The exact values as this type can hold them: those that it rounds to infinity are infinite.

    found: what a runtime returned, of the same shape; a value so near to the end of the range that rounding of what it is computed
        from decides is infinite where the runtime's is.
    """
    end = LARGEST.get(dtype) if dtype is not None else None
    spare = 1 + NEAR * unit_roundoff(dtype)
    size = exact.abs()
    if end is None or not exact.numel() or float(size.nan_to_num(0.0, posinf=0.0).max()) < end / spare:
        return exact
    infinite = size >= INFINITE[dtype]
    if found is not None:
        near = (size > end / spare) & (size < INFINITE[dtype] * spare)
        infinite = torch.where(near, found.isinf(), infinite)
    ends = torch.full_like(exact, math.inf).where(infinite, end)
    return torch.where(infinite | (size > end), ends.copysign(exact), exact)


def tensor(array: Any) -> Tensor:
    """A torch tensor of an array, on the same memory where torch can use it."""
    array = np.asarray(array)
    if array.dtype == BFLOAT16:
        array = array.astype(np.float32)
    if not array.flags.writeable or min(array.strides, default=0) < 0 or not array.dtype.isnative:
        array = np.array(array, dtype=array.dtype.newbyteorder("="))
    return torch.from_numpy(array)


def array(data: Any) -> Data:
    """A numpy array of what an operator returned: a tensor, an array, or a number."""
    if isinstance(data, Tensor):
        return data.numpy()
    if data is None or isinstance(data, (np.ndarray, list)):
        return data
    return list(data) if isinstance(data, tuple) else np.asarray(data)


def worst(excess: Any) -> tuple[tuple[int, ...], str]:
    """Where an array is largest, infinite and missing values included: the place, and how it is written behind a name."""
    place = np.unravel_index(int(np.argmax(np.where(np.isfinite(excess), excess, np.inf))), np.shape(excess))
    return tuple(map(int, place)), f"[{', '.join(map(str, map(int, place)))}]" if place else ""


# Types without a numpy type of their own -> the smallest and the largest number.
PACKED = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def whole_limits(dtype: Any) -> tuple[int, int] | None:
    """The smallest and the largest number of a type of whole numbers; None for another type."""
    name = dtype_name(dtype)
    if name in PACKED:
        return PACKED[name]
    info = np.iinfo(dtype) if dtype.kind in "iu" else None
    return None if info is None else (int(info.min), int(info.max))


def dtype_name(dtype: Any) -> str:
    """The name of a numpy type, as this project writes it."""
    return "bfloat16" if dtype == BFLOAT16 and dtype != np.float32 else str(np.dtype(dtype).name)
