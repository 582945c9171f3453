"""Weights of a few bits a value, in blocks with a scale each: products with a matrix, and tables of embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..model import Node
from ..values import is_float, tensor, whole_limits
from .registry import MICROSOFT, Call, operator

WIDTHS = (2, 4, 8)  # numbers of bits into which bytes are divided
INT8 = 4  # the accuracy level from which on a runtime may round activations to 8 bits
MOST = 127.0  # the largest number of steps of such an activation


@dataclass(frozen=True)
class Grid:
    """Weights of a few bits, every value by itself, in float64.

    steps: the stored numbers. zero, scale: the zero point and the scale of each, of the same shape. low, high: the smallest and the
    largest number of steps. axis: along which the blocks lie; None where they follow each other from row to row. block: values in
    each. gap: the distance of a number to the farther one beside it, in steps.
    """

    steps: Any
    zero: Any
    scale: Any
    low: float
    high: float
    axis: int | None
    block: int
    gap: Any = 1.0

    @property
    def values(self) -> Any:
        """The real numbers that the stored ones stand for."""
        return (self.steps - self.zero) * self.scale


@dataclass(frozen=True)
class FewBits:
    """How an operator takes weights of a few bits.

    places: which inputs they are: the stored numbers, their scales, zero points, and more.
    grid: the weights, of a node and these inputs. It raises UnsupportedOperator.
    real: place of the weights in the operator on real numbers. transposed: whether that takes them transposed.
    """

    places: tuple[int, ...]
    grid: Callable[..., Grid]
    real: int
    transposed: bool = False

    def of(self, node: Node, inputs: Sequence[Any]) -> Grid:
        """The weights. inputs: of the node; the stored numbers may be a grid already, as where noise was added to it."""
        given = [inputs[place] if place < len(inputs) else None for place in self.places]
        return given[0] if isinstance(given[0], Grid) else self.grid(node, *given)


def unpacked(stored: Any, bits: int) -> Any:
    """The values of bytes that hold one or several of them, the lowest bits first, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = stored[..., None] >> shifts & (2**bits - 1)
    return parts.reshape(*stored.shape[:-1], -1).astype(np.float64)


def rounds_inputs(node: Node) -> bool:
    """Whether a node lets a runtime round the values of its input to 8 bits."""
    eight = (
        node.op == "QMoE"
        and bool(node.get("block_size", 0))
        and max(_bits_of_layer(node, each) for each in (1, 2)) == 8
    )
    return eight or bool(node.op in ("MatMulNBits", "QMoE") and node.get("accuracy_level", 0) >= INT8)


def spread(call: Call, x: Any, block: int) -> Any:
    """Activations, in perturbed passes with the error of rounding each block to 8 bits, where the node allows that.

    ONNX Runtime's kernels divide a block of the last axis by its largest value / 127, and round to whole numbers. Whether there is
    such a kernel depends on the processor, the number of bits and the size of the blocks.
    """
    if call.spread is None or not x.size or not rounds_inputs(call.node):
        return x
    columns = x.shape[-1]
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -columns % block)]).reshape(*x.shape[:-1], -1, block)
    step = np.abs(padded).max(-1, keepdims=True) / MOST
    error = padded - np.rint(padded / np.where(step > 0, step, 1.0)) * step
    return x + call.spread(math.sqrt(3) * np.abs(error).reshape(*x.shape[:-1], -1)[..., :columns])


# -- the product with a matrix ----------------------------------------------------------------------------------------


def _matrix(node: Node, stored: Any, scales: Any, zeros: Any = None, groups: Any = None) -> Grid:
    """The matrix of MatMulNBits, (N, K).

    zeros: packed like the matrix, or a real number for each block. groups: the block of each column, (K,); None where they are in
    order.
    """
    bits, block = node.get("bits", 4), node.get("block_size")
    rows, columns = node.get("N"), node.get("K")
    count = -(-columns // block)
    if bits not in WIDTHS or node.get("weight_prepacked", 0):
        raise node.unsupported(f"has {bits} bits, or weights in an order of one device")
    steps = unpacked(stored.reshape(rows, count, -1), bits)[..., :block].reshape(rows, -1)[:, :columns]
    offset = np.full((rows, count), 2.0 ** (bits - 1))
    if zeros is not None:
        offset = zeros.reshape(rows, count) if is_float(zeros) else unpacked(zeros.reshape(rows, -1), bits)[:, :count]
    of_column = np.arange(columns) // block if groups is None else groups[:columns]
    zero, scale = (each.astype(np.float64)[:, of_column] for each in (offset, scales.reshape(rows, count)))
    return Grid(steps, zero, scale, 0.0, 2.0**bits - 1.0, 1, block)


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
    call: Call, a: Any, b: Any, scales: Any, zeros: Any = None, groups: Any = None, bias: Any = None
) -> Any:
    """The product with a matrix of a few bits a value, quantised in blocks along its rows."""
    real = FEW_BITS["MatMulNBits"].of(call.node, (a, b, scales, zeros, groups)).values
    y = torch.matmul(tensor(spread(call, a, call.node.get("block_size"))), torch.from_numpy(real.T.astype(call.dtype)))
    return y if bias is None else y + tensor(bias)


# The numbers of NF4, which are quantiles of normal values, and of FP4 without their sign, by the bits that stand for them.
NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
])  # fmt: skip
FP4 = np.array([0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4]).astype(np.float32).astype(np.float64)
LEVELS = (np.concatenate([FP4, -FP4]), NF4)  # by the attribute quant_type


def _levels(node: Node, stored: Any, scales: Any) -> Grid:
    """The matrix of MatMulBnb4, (N, K). Its numbers follow each other from row to row, the first one of a byte in its high bits."""
    shape, block = (node.get("N"), node.get("K")), node.get("block_size")
    count, known = math.prod(shape), LEVELS[node.get("quant_type")]
    codes = unpacked(stored.reshape(-1), 4).reshape(-1, 2)[:, ::-1].reshape(-1)[:count].astype(int)
    ordered = np.unique(known)
    apart = np.diff(ordered, prepend=ordered[0], append=ordered[-1])
    gaps = np.maximum(apart[:-1], apart[1:])[np.searchsorted(ordered, known[codes])]
    scale = np.repeat(scales.reshape(-1).astype(np.float64), block)[:count]
    steps, scale, gaps = (each.reshape(shape) for each in (known[codes], scale, gaps))
    return Grid(steps, np.zeros(shape), scale, -1.0, 1.0, None, block, gaps)


@operator("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(call: Call, a: Any, b: Any, scales: Any) -> Any:
    """The product with a matrix of sixteen different numbers, in blocks with a largest value each."""
    real = tensor(FEW_BITS["MatMulBnb4"].of(call.node, (a, b, scales)).values.astype(call.dtype))
    return torch.matmul(tensor(a), real.T if call.node.get("transB", 1) else real)


# -- tables -------------------------------------------------------------------------------------------------------------


def _table(node: Node, stored: Any, scales: Any, zeros: Any = None) -> Grid:
    """The table of GatherBlockQuantized. zeros: of its type, packed like it."""
    bits, packed = node.get("bits", 4), stored.dtype == np.uint8
    steps = unpacked(stored, bits) if packed else stored.astype(np.float64)
    axis = node.get("quantize_axis", 1) % steps.ndim
    block = node.get("block_size", 128) or steps.shape[axis]
    offset = np.full(scales.shape, 2.0 ** (bits - 1) if packed else 0.0)
    if zeros is not None:
        offset = (unpacked(zeros, bits)[..., : scales.shape[-1]] if packed else zeros).astype(np.float64)

    def of_value(parameter: Any) -> Any:
        """The parameter of each value: of its block, or of all along an axis on which there is one."""
        wide = np.take(np.repeat(parameter, block, axis), range(steps.shape[axis]), axis)
        return np.broadcast_to(wide, steps.shape)

    low, high = (0.0, 2.0**bits - 1.0) if packed else whole_limits(stored.dtype) or (-math.inf, math.inf)
    return Grid(steps, of_value(offset), of_value(scales.astype(np.float64)), low, high, axis, block)


@operator("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(call: Call, table: Any, indices: Any, scales: Any, zeros: Any = None) -> Any:
    """Rows of a table of a few bits a value, as real numbers. A place beyond the table is a row of zeros."""
    real = FEW_BITS["GatherBlockQuantized"].of(call.node, (table, indices, scales, zeros)).values
    axis = call.get("gather_axis", 0) % real.ndim
    count = real.shape[axis]
    places = np.where(indices < 0, indices + count, indices)
    known = (places >= 0) & (places < count)
    found = np.take(real, np.where(known, places, 0), axis)
    return np.where(known.reshape(known.shape + (1,) * (real.ndim - axis - 1)), found, 0.0).astype(call.dtype)


# -- experts ------------------------------------------------------------------------------------------------------------


def _bits_of_layer(node: Node, layer: int) -> int:
    return int(node.get(f"fc{layer}_expert_weight_bits") or node.get("expert_weight_bits", 4))


def expert_weights(node: Node, stored: Any, scales: Any, zeros: Any, layer: int) -> Any:
    """The weights of a layer of all experts of QMoE, (experts, outputs, inputs).

    stored: the bytes, each row by itself. scales: of each row, or of each block of it. zeros: packed like the weights; None for the
    middle of the range. layer: 1 or 2.
    """
    bits = _bits_of_layer(node, layer)
    steps, count = unpacked(stored, bits), 1 if scales.ndim == 2 else scales.shape[-1]
    offset = np.full(scales.shape, 2.0 ** (bits - 1))
    if zeros is not None:
        offset = unpacked(zeros, bits)[..., : scales.shape[-1]]
    zero, scale = (
        np.repeat(each.reshape(*steps.shape[:2], count), steps.shape[-1] // count, -1) for each in (offset, scales)
    )
    return (steps - zero) * scale.astype(np.float64)


FEW_BITS = {
    "MatMulNBits": FewBits((1, 2, 3, 4), _matrix, 1, transposed=True),
    "MatMulBnb4": FewBits((1, 2), _levels, 1, transposed=True),
    "GatherBlockQuantized": FewBits((0, 2, 3), _table, 0),
}
