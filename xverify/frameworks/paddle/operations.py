"""The operations of Paddle."""

from __future__ import annotations

from typing import Any

import paddle

from xverify.framework.adapter import Array
from xverify.workload.operations import Operations


class PaddleOperations(Operations):
    def __init__(self) -> None:
        super().__init__(paddle)

    def maximum(self, x: Any, y: Any) -> Any:
        return paddle.clip(x, min=y) if isinstance(y, float) else paddle.maximum(x, y)

    def minimum(self, x: Any, y: Any) -> Any:
        return paddle.clip(x, max=y) if isinstance(y, float) else paddle.minimum(x, y)

    def sum(self, x: Any, axis: int | None = None, keep: bool = False) -> Any:
        return paddle.sum(x, axis, keepdim=keep)

    def mean(self, x: Any, axis: int | None) -> Any:
        return x.mean(axis, keepdim=True)

    def largest(self, x: Any, axis: int) -> Any:
        return paddle.max(x, axis, keepdim=True).detach()

    def expanded(self, x: Any, axis: int) -> Any:
        return paddle.unsqueeze(x, axis)

    def constant(self, array: Array, like: Any) -> Any:
        return paddle.to_tensor(array).cast(like.dtype)

    def cast(self, x: Any, like: Any) -> Any:
        return paddle.cast(x, like.dtype)

    def product(self, x: Any, y: Any) -> Any:
        return paddle.matmul(x, y, transpose_y=True)

    def ctc(self, logits: Any, labels: Any, lengths: Any, blank: int) -> Any:
        items, steps = logits.shape[:2]
        given = paddle.full([items], steps, "int64")
        counts = paddle.full([items], labels.shape[1], "int64") if lengths is None else paddle.cast(lengths, "int64")
        by_time = paddle.transpose(logits, [1, 0, 2])
        found = paddle.nn.functional.ctc_loss(by_time, labels.cast("int32"), given, counts, blank, reduction="none")
        return found.reshape([-1])
