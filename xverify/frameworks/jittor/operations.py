"""The operations of Jittor."""

from __future__ import annotations

from typing import Any

import jittor as jt

from xverify.framework.adapter import Array
from xverify.workload.operations import Operations


class JittorOperations(Operations):
    def __init__(self) -> None:
        super().__init__(jt)

    def sign(self, x: Any) -> Any:
        return (x > 0).float32() - (x < 0).float32()

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return jt.ternary(condition, x, y)

    def clip(self, x: Any, limit: float) -> Any:
        return jt.clamp(x, -limit, limit)

    def sum(self, x: Any, axis: int | None = None, keep: bool = False) -> Any:
        return x.sum() if axis is None else x.sum(axis % x.ndim, keepdims=keep)

    def mean(self, x: Any, axis: int | None) -> Any:
        """The mean of all values is taken axis by axis: a single float32 sum of all loses digits."""
        for each in range(x.ndim) if axis is None else [axis]:
            x = jt.mean(x, dims=[each], keepdims=True)
        return x

    def largest(self, x: Any, axis: int) -> Any:
        return x.max(axis % x.ndim, keepdims=True).stop_grad()

    def expanded(self, x: Any, axis: int) -> Any:
        return x.unsqueeze(axis)

    def constant(self, array: Array, like: Any) -> Any:
        return jt.array(array.astype(str(like.dtype))).stop_grad()

    def cast(self, x: Any, like: Any) -> Any:
        return x.cast(str(like.dtype))

    def product(self, x: Any, y: Any) -> Any:
        return jt.matmul(x, y.transpose(1, 0))

    def ctc(self, logits: Any, labels: Any, lengths: Any, blank: int) -> Any:
        items, steps = logits.shape[:2]
        shifted = logits - self.largest(logits, -1)
        logarithms = shifted - shifted.exp().sum(2, keepdims=True).log()
        counts = jt.full((items,), labels.shape[1], "int32") if lengths is None else lengths
        given = jt.full((items,), steps, "int32")
        return jt.ctc_loss(logarithms.transpose(1, 0, 2), labels, given, counts, blank, "none")
