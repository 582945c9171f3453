"""The operations of Jittor, from which the named losses are computed."""

from __future__ import annotations

from typing import Any

import jittor as jt

from xverify.framework.adapter import Array
from xverify.workload.loss_formulas import value
from xverify.workload.losses import Loss


class JittorOperations:
    """See loss_formulas.Operations."""

    def exp(self, x: Any) -> Any:
        return x.exp()

    def log(self, x: Any) -> Any:
        return x.log()

    def sqrt(self, x: Any) -> Any:
        return x.sqrt()

    def absolute(self, x: Any) -> Any:
        return x.abs()

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return jt.ternary(condition, x, y)

    def sum(self, x: Any, axis: int | None = None, keep: bool = False) -> Any:
        return x.sum() if axis is None else x.sum(axis % x.ndim, keepdims=keep)

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


def jittor_loss(loss: Loss, x: Any, t: Any, axis: int, lengths: Any) -> Any:
    """The value of a named loss; see loss_formulas.value."""
    return value(JittorOperations(), loss, x, t, axis, lengths)
