"""The operations of MLX.

MLX on the CPU adds the values of a sum one after the other, in float32: a million squares of random numbers have a sum that is
wrong by 4e-4 of its value. Here, sums are taken block by block.
"""

from __future__ import annotations

from typing import Any

from mlx import core

from xverify.framework.adapter import Array
from xverify.workload.operations import Operations

BLOCK = 64  # values that are added one after the other


class MlxOperations(Operations):
    def __init__(self) -> None:
        super().__init__(core)

    def sum(self, x: Any, axis: int | None = None, keep: bool = False) -> Any:
        left = x.reshape(-1) if axis is None else core.moveaxis(x, axis, -1)
        while left.shape[-1] > BLOCK:
            whole = left.shape[-1] // BLOCK * BLOCK
            blocks = left[..., :whole].reshape(*left.shape[:-1], -1, BLOCK).sum(-1)
            left = core.concatenate([blocks, left[..., whole:]], -1)
        total = left.sum(-1)
        if not keep:
            return total
        return total.reshape([1] * x.ndim) if axis is None else core.expand_dims(total, axis)

    def mean(self, x: Any, axis: int | None) -> Any:
        return self.sum(x, axis, keep=True) / (x.size if axis is None else x.shape[axis])

    def largest(self, x: Any, axis: int) -> Any:
        return core.stop_gradient(core.max(x, axis, keepdims=True))

    def constant(self, array: Array, like: Any) -> Any:
        return core.array(array, like.dtype)

    def cast(self, x: Any, like: Any) -> Any:
        return x.astype(like.dtype)
