"""The sums of an int8 kernel that adds two products in 16 bits, as processors without VNNI do; see ``vpmaddubsw`` of AVX2.

Seen with ONNX Runtime on an emulated Haswell: products of uint8 activations and int8 weights were these sums to the last bit. Of a
convolution, the channels follow each other first. Convolutions of int8 activations, and ConvInteger, were exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .spatial import Windows

SATURATING = frozenset({
    "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QLinearMatMul", "QGemm", "QLinearConv",
})  # fmt: skip
LEAST, MOST = -(2.0**15), 2.0**15 - 1

_saturates = ContextVar("saturates", default=False)


@contextmanager
def saturating() -> Iterator[None]:
    """Compute the products of quantised arrays as such a kernel does."""
    token = _saturates.set(True)
    try:
        yield
    finally:
        _saturates.reset(token)


def saturates(a: Any, b: Any) -> bool:
    """Whether the product of two quantised arrays is computed so."""
    return _saturates.get() and np.asarray(a).dtype == np.uint8 and np.asarray(b).dtype == np.int8


def product(a: Any, b: Any, a_zero: Tensor, b_zero: Tensor) -> Tensor:
    """The product of matrices without their zero points, which are subtracted from the saturated sums of the stored numbers."""
    left, right = (torch.from_numpy(np.asarray(each).astype(np.float64)) for each in (a, b))
    total = torch.zeros(
        torch.broadcast_shapes((*left.shape[:-1], 1), (*right.shape[:-2], 1, right.shape[-1])), dtype=torch.float64
    )
    size = left.shape[-1]
    for k in range(0, size, 2):
        total = total + torch.matmul(left[..., k : k + 2], right[..., k : k + 2, :]).clamp(LEAST, MOST)
    return total - a_zero * right.sum(-2, keepdim=True) - left.sum(-1, keepdim=True) * b_zero + size * a_zero * b_zero


def convolution(x: Any, w: Any, x_zero: Any, window: Windows, groups: int) -> Tensor | None:
    """The same of a convolution of images with weights whose zero point is 0; None of other ones."""
    if np.ndim(x) != 4:
        return None
    zero = torch.tensor(0.0 if x_zero is None else float(np.asarray(x_zero).reshape(-1)[0]), dtype=torch.float64)
    image = F.pad(torch.from_numpy(x.astype(np.float64)), window.sides, value=float(zero))
    seen = F.unfold(image, window.kernel, window.dilations, 0, window.strides)  # (items, channels x kernel, places)
    spots = window.kernel[0] * window.kernel[1]
    per_group = seen.reshape(len(x), groups, -1, spots, seen.shape[-1]).transpose(2, 3).flatten(2, 3).transpose(2, 3)
    kernel = w.reshape(groups, w.shape[0] // groups, w.shape[1], spots).transpose(0, 3, 2, 1)
    made = product(
        per_group.numpy().astype(np.uint8), kernel.reshape(groups, -1, kernel.shape[-1]), zero, torch.tensor(0.0)
    )
    return made.transpose(2, 3).reshape(len(x), w.shape[0], *window.outputs)
