"""Operators that move, select or create values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch.nn.functional as F

from ....float64.rounding import settled
from ..values import UNITS, element_type, is_float, tensor, unit_roundoff
from .registry import Call, Operator, operator
from .rest import compute

# Operators that are one function of numpy or torch.
SIMPLE: dict[str, Operator] = {
    "Identity": lambda call, x: x,
    "Optional": lambda call, x: x,
    "OptionalGetElement": lambda call, x: x,
    "Transpose": lambda call, x: np.transpose(x, call.get("perm")),
    "Concat": lambda call, *inputs: np.concatenate(inputs, call.get("axis", 1)),
    "Gather": lambda call, x, indices: np.take(x, indices, axis=call.get("axis", 0), mode="raise"),
    "NonZero": lambda call, x: np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64),
    "BitCast": lambda call, x: compute(call, x.astype(call.types[0])),
    "AffineGrid": lambda call, theta, size: F.affine_grid(
        tensor(theta), list(integers(size)), align_corners=bool(call.get("align_corners", 0))
    ),
}
for _name, _function in SIMPLE.items():
    operator(_name)(_function)


def integers(values: Any) -> tuple[int, ...]:
    """Lengths or axes as numbers of Python."""
    return tuple(int(value) for value in np.reshape(values, -1))


@operator("Reshape")
def reshape(call: Call, x: Any, shape: Any = None) -> Any:
    """The same values in another shape; 0 keeps an axis, -1 takes what is left."""
    wanted = list(integers(call.get("shape") if shape is None else shape))
    if not call.get("allowzero", 0):
        wanted = [x.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    return x.reshape(wanted)


@operator("Flatten")
def flatten(call: Call, x: Any) -> Any:
    """A matrix of the same values."""
    axis = call.get("axis", 1)
    rows = math.prod(x.shape[: axis if axis >= 0 else axis + x.ndim])
    return x.reshape(rows, -1) if x.size else x.reshape(rows, math.prod(x.shape[axis:]))


@operator("GatherElements")
def gather_elements(call: Call, x: Any, indices: Any) -> Any:
    """For each index, the value of its place along an axis."""
    return x[_element_places(call, x, indices)]


@operator("GatherND")
def gather_nd(call: Call, x: Any, indices: Any) -> Any:
    """The slices at these positions."""
    batch = call.get("batch_dims", 0)
    if batch == 0:
        return x[tuple(np.moveaxis(indices, -1, 0))]
    rows = x.reshape(-1, *x.shape[batch:])
    places = indices.reshape(-1, *indices.shape[batch:])
    found = np.stack([row[tuple(np.moveaxis(place, -1, 0))] for row, place in zip(rows, places)])
    return found.reshape(*x.shape[:batch], *found.shape[1:])


def _element_places(call: Call, x: Any, indices: Any) -> tuple[Any, ...]:
    """The index of a value of x for each of the indices along one axis."""
    axis = call.get("axis", 0) % max(1, x.ndim)
    places = list(np.indices(indices.shape, sparse=True))
    places[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
    return tuple(places)


COMBINATIONS: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@operator("ScatterND", "ScatterElements", "Scatter")
def scatter(call: Call, x: Any, indices: Any, updates: Any) -> Any:
    """A copy in which values at these places are replaced, or added to, multiplied, or compared."""
    slices = call.node.op == "ScatterND"
    y, place = x.copy(), tuple(np.moveaxis(indices, -1, 0)) if slices else _element_places(call, x, indices)
    combine = COMBINATIONS.get(call.get("reduction", "none"))
    if combine is None:
        y[place] = updates
    else:
        combine.at(y, place, updates)
    return y


@operator("Expand")
def expand(call: Call, x: Any, shape: Any) -> Any:
    """Repeated along axes of length one."""
    wanted = np.broadcast_shapes(x.shape, integers(shape))
    return np.ascontiguousarray(np.broadcast_to(x, wanted)).reshape(wanted)


@operator("Pad")
def pad(call: Call, x: Any, pads: Any = None, constant: Any = None, axes: Any = None) -> Any:
    """Return the array with more values around it, or with fewer where the padding is negative."""
    pads = integers(call.get("pads") if pads is None else pads)
    axes = range(x.ndim) if axes is None else [int(axis) % x.ndim for axis in axes]
    half = len(pads) // 2
    sides = [(0, 0)] * x.ndim
    for axis, before, after in zip(axes, pads[:half], pads[half:]):
        sides[axis] = (before, after)
    x = x[tuple(slice(max(0, -before), size - max(0, -after)) for (before, after), size in zip(sides, x.shape))]
    added = [(max(0, before), max(0, after)) for before, after in sides]
    mode = call.get("mode", "constant")
    if mode != "constant":
        return np.pad(x, added, mode=mode)
    value = call.get("value", 0.0) if constant is None or not np.size(constant) else np.reshape(constant, ())
    return np.pad(x, added, constant_values=np.asarray(value).astype(x.dtype))


@operator("Range")
def numbers(call: Call, start: Any, limit: Any, delta: Any) -> Any:
    """start, start + delta, and so on, below the limit."""
    first, last, step = (np.reshape(part, ()).item() for part in (start, limit, delta))
    count = max(0, math.ceil((last - first) / step))
    return np.asarray(first + np.arange(count) * step).astype(np.asarray(start).dtype)


@operator("Cast", "CastLike")
def cast(call: Call, x: Any, like: Any = None) -> Any:
    """Another type. Between floating-point types, the exact value stays as it is; from one to whole numbers, it is cut off."""
    dtype = cast_type(call.node, call.types[-1] if like is not None else None)
    if dtype is None or "O" in (x.dtype.kind, dtype.kind):
        return compute(call, x) if like is None else compute(call, x, like)
    if dtype in UNITS:
        return x.astype(call.dtype)
    if dtype in PLAIN and (is_float(x) or x.dtype in PLAIN):
        with np.errstate(invalid="ignore"):
            return np.isnan(x) | (x != 0) if dtype.kind == "b" else _whole(_settled(call, x), dtype)
    narrow = x.astype(np.float32) if is_float(x) else x  # types of 8 bits and fewer, which onnx rounds
    return compute(call, narrow) if like is None else compute(call, narrow, like)


PLAIN = tuple(np.dtype(name) for name in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"))


def _settled(call: Call, x: Any) -> Any:
    """Exact values as their type holds them, where it holds a whole number."""
    unit = unit_roundoff(call.types[0]) if call.types and is_float(x) and x.dtype == np.float64 else 0.0
    return settled(tensor(x), unit, 0.5).numpy() if unit else x


def _whole(x: Any, dtype: Any) -> Any:
    """Whole numbers of this type, in the way of C: cut off, then reduced to the number of bits."""
    if not is_float(x):
        return x.astype(dtype)
    if dtype == np.uint64:
        return x.astype(dtype)
    return x.astype(np.int64).astype(dtype)


def cast_type(node: Any, like: Any = None) -> Any:
    """The numpy type to which a node casts; None for one that numpy does not have."""
    if like is not None:
        return like
    to = node.get("to")
    return element_type(to) if isinstance(to, int) else None
