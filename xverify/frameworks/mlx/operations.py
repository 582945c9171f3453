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
NEVER = -1e30  # the logarithm of the probability of what cannot be


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

    def ctc(self, logits: Any, labels: Any, lengths: Any, blank: int) -> Any:
        # MLX has no such loss. This is the forward recursion of Graves et al. (2006), over the labels with blanks around each.
        items, steps = logits.shape[:2]
        size = 2 * labels.shape[1] + 1
        states = core.full((items, size), blank, core.int32)
        states[:, 1::2] = labels
        logarithms = logits - core.logsumexp(logits, -1, keepdims=True)
        emitted = core.take_along_axis(logarithms, core.broadcast_to(states[:, None], (items, steps, size)), -1)
        other = core.concatenate([core.zeros((items, 2), core.bool_), states[:, 2:] != states[:, :-2]], 1)
        skips = core.logical_and(states != blank, other)
        never = core.full((items, 2), NEVER)
        paths = core.where(core.arange(size) < 2, emitted[:, 0], NEVER)
        for step in range(1, steps):
            one = core.concatenate([never[:, :1], paths[:, :-1]], 1)
            two = core.where(skips, core.concatenate([never, paths[:, :-2]], 1), NEVER)
            paths = emitted[:, step] + core.logaddexp(core.logaddexp(paths, one), two)
        ends = 2 * (core.full((items,), labels.shape[1], core.int32) if lengths is None else lengths.astype(core.int32))
        last = core.take_along_axis(paths, core.stack([ends, core.maximum(ends - 1, 0)], 1), 1)
        return -core.where(ends > 0, core.logaddexp(last[:, 0], last[:, 1]), last[:, 0])
