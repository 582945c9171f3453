"""Products of matrices, and sums along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..values import is_float, tensor
from .registry import MICROSOFT, Call, operator
from .rest import compute


@operator("MatMul")
def matmul(call: Call, a: Any, b: Any) -> Any:
    """The product of two stacks of matrices."""
    return torch.matmul(tensor(a), tensor(b)) if is_float(a) else np.matmul(a, b)


@operator("Gemm")
def gemm(call: Call, a: Any, b: Any, c: Any = None) -> Any:
    """alpha · A · B + beta · C, with A and B transposed on demand."""
    if not is_float(a):
        return compute(call, a, b) if c is None else compute(call, a, b, c)
    left = tensor(a).T if call.get("transA", 0) else tensor(a)
    right = tensor(b).T if call.get("transB", 0) else tensor(b)
    y = left @ right
    if (alpha := call.get("alpha", 1.0)) != 1.0:
        y = y * alpha
    if c is None:
        return y
    return torch.add(y, tensor(c), alpha=call.get("beta", 1.0))


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(call: Call, a: Any, b: Any) -> Any:
    """alpha · A · B, with the last two axes, or the batch axes, of A and B exchanged on demand."""
    sides = []
    for name, x in (("A", tensor(a)), ("B", tensor(b))):
        if call.get(f"transBatch{name}", 0):
            x = x.movedim(0, -2)
        if call.get(f"trans{name}", 0) and x.dim() > 1:
            x = x.mT
        sides.append(x)
    return torch.matmul(*sides) * call.get("alpha", 1.0)


@operator("Einsum")
def einsum(call: Call, *inputs: Any) -> Any:
    """A product of tensors, summed over some of their axes."""
    equation = call.get("equation").replace(" ", "")
    if not all(map(is_float, inputs)):
        return compute(call, *inputs)
    if len(inputs) == 1:  # torch has no diagonals of one operand in this notation
        return np.einsum(equation, inputs[0])
    try:
        return torch.einsum(equation, *map(tensor, inputs))
    except RuntimeError:
        return np.einsum(equation, *inputs)


@operator("CumSum")
def cumulative_sum(call: Call, x: Any, axis: Any) -> Any:
    """Sums of all values up to each one along an axis."""
    axis = int(np.reshape(axis, ()))
    if call.get("reverse", 0):
        x = np.flip(x, axis)
    y = np.cumsum(x, axis, dtype=x.dtype)
    if call.get("exclusive", 0):
        y = np.roll(y, 1, axis)
        index: list[Any] = [slice(None)] * x.ndim
        index[axis] = slice(0, 1)
        y[tuple(index)] = 0
    return np.flip(y, axis) if call.get("reverse", 0) else y
