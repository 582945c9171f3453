"""The operations of Paddle, from which the named losses are computed."""

from __future__ import annotations

from typing import Any

import paddle

from xverify.framework.adapter import Array
from xverify.workload.loss_formulas import value
from xverify.workload.losses import Loss


class PaddleOperations:
    """See loss_formulas.Operations."""

    def exp(self, x: Any) -> Any:
        return paddle.exp(x)

    def log(self, x: Any) -> Any:
        return paddle.log(x)

    def sqrt(self, x: Any) -> Any:
        return paddle.sqrt(x)

    def absolute(self, x: Any) -> Any:
        return paddle.abs(x)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return paddle.where(condition, x, y)

    def sum(self, x: Any, axis: int | None = None, keep: bool = False) -> Any:
        return paddle.sum(x, axis, keepdim=keep)

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


def paddle_loss(loss: Loss, x: Any, t: Any, axis: int, lengths: Any) -> Any:
    """The value of a named loss; see loss_formulas.value."""
    return value(PaddleOperations(), loss, x, t, axis, lengths)
