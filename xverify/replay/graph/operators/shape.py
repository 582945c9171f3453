"""Operators that move, select or create values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from ..values import UNITS, is_float, tensor
from .registry import Call, operator
from .rest import compute


@operator("Identity")
def identity(call: Call, x: Any) -> Any:
    """The input."""
    return x


@operator("Reshape")
def reshape(call: Call, x: Any, shape: Any = None) -> Any:
    """The same values in another shape; 0 keeps an axis, -1 takes what is left."""
    wanted = [int(size) for size in (call.get("shape") if shape is None else shape)]
    if not call.get("allowzero", 0):
        wanted = [x.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    return x.reshape(wanted)


@operator("Flatten")
def flatten(call: Call, x: Any) -> Any:
    """A matrix of the same values."""
    axis = call.get("axis", 1)
    rows = math.prod(x.shape[: axis if axis >= 0 else axis + x.ndim])
    return x.reshape(rows, -1) if x.size else x.reshape(rows, math.prod(x.shape[axis:]))


@operator("Transpose")
def transpose(call: Call, x: Any) -> Any:
    """The axes in another order."""
    return np.transpose(x, call.get("perm"))


@operator("Squeeze")
def squeeze(call: Call, x: Any, axes: Any = None) -> Any:
    """Without axes of length one."""
    axes = call.get("axes") if axes is None else axes
    return np.squeeze(x, None if axes is None else tuple(int(axis) for axis in np.reshape(axes, -1)))


@operator("Unsqueeze")
def unsqueeze(call: Call, x: Any, axes: Any = None) -> Any:
    """With more axes of length one."""
    axes = call.get("axes") if axes is None else axes
    return np.expand_dims(x, tuple(int(axis) for axis in np.reshape(axes, -1)))


@operator("Concat")
def concat(call: Call, *inputs: Any) -> Any:
    """The inputs behind one another."""
    return np.concatenate(inputs, call.get("axis", 1))


@operator("Slice")
def slices(call: Call, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    """A range along some axes."""
    starts, ends = (call.get(name) if given is None else given for name, given in (("starts", starts), ("ends", ends)))
    axes = call.get("axes") if axes is None else axes
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    index: list[slice] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(*(map(int, part) for part in (axes, starts, ends, steps))):
        size = x.shape[axis]
        first = min(max(start + size if start < 0 else start, 0), size if step > 0 else size - 1)
        last = min(max(end + size if end < 0 else end, 0 if step > 0 else -1), size)
        index[axis] = slice(first, None if last < 0 else last, step)
    return x[tuple(index)]


@operator("Split")
def split(call: Call, x: Any, sizes: Any = None) -> Any:
    """Parts along an axis."""
    axis = call.get("axis", 0)
    sizes = call.get("split") if sizes is None else sizes
    if sizes is None:
        count = call.get("num_outputs") or len(call.node.outputs)
        part = -(-x.shape[axis] // count)
        sizes = [part] * (count - 1) + [x.shape[axis] - part * (count - 1)]
    return tuple(np.split(x, np.cumsum([int(size) for size in sizes])[:-1], axis))


@operator("Gather")
def gather(call: Call, x: Any, indices: Any) -> Any:
    """The slices of these indices along an axis."""
    return np.take(x, indices, axis=call.get("axis", 0), mode="raise")


@operator("GatherElements")
def gather_elements(call: Call, x: Any, indices: Any) -> Any:
    """For each index, the value of its place along an axis."""
    axis = call.get("axis", 0) % max(1, x.ndim)
    places = np.where(indices < 0, indices + x.shape[axis], indices)
    index = list(np.indices(places.shape, sparse=True))
    index[axis] = places
    return x[tuple(index)]


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


def _combination(call: Call) -> np.ufunc | None:
    """How a scatter combines its updates with the values; None when it replaces them."""
    known: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    return known.get(call.get("reduction", "none"))


@operator("ScatterND")
def scatter_nd(call: Call, x: Any, indices: Any, updates: Any) -> Any:
    """A copy in which the slices at these positions are replaced, or added to, multiplied, or compared."""
    y, place = x.copy(), tuple(np.moveaxis(indices, -1, 0))
    combine = _combination(call)
    if combine is None:
        y[place] = updates
    else:
        combine.at(y, place, updates)
    return y


@operator("ScatterElements", "Scatter")
def scatter_elements(call: Call, x: Any, indices: Any, updates: Any) -> Any:
    """A copy in which the values of these places along an axis are replaced, or added to, multiplied, or compared."""
    axis = call.get("axis", 0) % max(1, x.ndim)
    y, index = x.copy(), list(np.indices(indices.shape, sparse=True))
    index[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
    combine = _combination(call)
    if combine is None:
        y[tuple(index)] = updates
    else:
        combine.at(y, tuple(index), updates)
    return y


@operator("Expand")
def expand(call: Call, x: Any, shape: Any) -> Any:
    """Repeated along axes of length one."""
    wanted = np.broadcast_shapes(x.shape, tuple(int(size) for size in shape))
    return np.ascontiguousarray(np.broadcast_to(x, wanted)).reshape(wanted)


@operator("Tile")
def tile(call: Call, x: Any, repeats: Any) -> Any:
    """Repeated along each axis."""
    return np.tile(x, tuple(int(count) for count in repeats))


@operator("Pad")
def pad(call: Call, x: Any, pads: Any = None, constant: Any = None, axes: Any = None) -> Any:
    """With more values around, or fewer where the padding is negative."""
    pads = [int(size) for size in (call.get("pads") if pads is None else pads)]
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


@operator("Shape")
def shape_of(call: Call, x: Any) -> Any:
    """The lengths of the axes."""
    return np.array(np.shape(x)[call.get("start", 0) : call.get("end")], np.int64)


@operator("Size")
def size_of(call: Call, x: Any) -> Any:
    """The number of values."""
    return np.array(np.size(x), np.int64)


@operator("ConstantOfShape")
def constant_of_shape(call: Call, shape: Any) -> Any:
    """One value everywhere."""
    value = call.get("value", np.zeros(1, np.float32)).reshape(())
    return np.full(tuple(int(size) for size in shape), value.astype(call.dtype) if is_float(value) else value)


@operator("Range")
def numbers(call: Call, start: Any, limit: Any, delta: Any) -> Any:
    """start, start + delta, and so on, below the limit."""
    first, last, step = (np.reshape(part, ()).item() for part in (start, limit, delta))
    count = max(0, math.ceil((last - first) / step))
    return np.asarray(first + np.arange(count) * step).astype(np.asarray(start).dtype)


@operator("Trilu")
def triangle(call: Call, x: Any, k: Any = None) -> Any:
    """The upper or the lower triangle; zero elsewhere."""
    return (np.triu if call.get("upper", 1) else np.tril)(x, 0 if k is None else int(np.reshape(k, ())))


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
            return np.isnan(x) | (x != 0) if dtype.kind == "b" else _whole(x, dtype)
    narrow = x.astype(np.float32) if is_float(x) else x  # types of 8 bits and fewer, which onnx rounds
    return compute(call, narrow) if like is None else compute(call, narrow, like)


@operator("BitCast")
def bit_cast(call: Call, x: Any) -> Any:
    """The same bits as another type."""
    return compute(call, x.astype(call.types[0]))


PLAIN = tuple(np.dtype(name) for name in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"))


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
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(to)) if isinstance(to, int) else None


@operator("DepthToSpace")
def depth_to_space(call: Call, x: Any) -> Any:
    """Channels moved into blocks of the image."""
    size, (n, c, h, w) = call.get("blocksize"), x.shape
    if call.get("mode", "DCR") == "DCR":
        blocks = x.reshape(n, size, size, c // size**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, c // size**2, size, size, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, c // size**2, h * size, w * size)


@operator("NonZero")
def non_zero(call: Call, x: Any) -> Any:
    """Where values are not zero."""
    return np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)


@operator("AffineGrid")
def affine_grid(call: Call, theta: Any, size: Any) -> Any:
    """The coordinates of an affine map."""
    import torch.nn.functional as F

    return F.affine_grid(tensor(theta), [int(s) for s in size], align_corners=bool(call.get("align_corners", 0)))
