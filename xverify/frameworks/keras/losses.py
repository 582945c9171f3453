"""The operations of Keras, on any backend, from which the named losses are computed."""

from __future__ import annotations

from typing import Any

from keras import ops

from xverify.framework.adapter import Array
from xverify.workload.loss_formulas import value
from xverify.workload.losses import Loss


class KerasOperations:
    """See loss_formulas.Operations."""

    def exp(self, x: Any) -> Any:
        return ops.exp(x)

    def log(self, x: Any) -> Any:
        return ops.log(x)

    def sqrt(self, x: Any) -> Any:
        return ops.sqrt(x)

    def absolute(self, x: Any) -> Any:
        return ops.abs(x)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return ops.where(condition, x, y)

    def sum(self, x: Any, axis: int | None = None, keep: bool = False) -> Any:
        return ops.sum(x, axis, keepdims=keep)

    def largest(self, x: Any, axis: int) -> Any:
        return ops.stop_gradient(ops.max(x, axis, keepdims=True))

    def expanded(self, x: Any, axis: int) -> Any:
        return ops.expand_dims(x, axis)

    def constant(self, array: Array, like: Any) -> Any:
        return ops.cast(ops.convert_to_tensor(array), like.dtype)

    def cast(self, x: Any, like: Any) -> Any:
        return ops.cast(x, like.dtype)

    def product(self, x: Any, y: Any) -> Any:
        return ops.matmul(x, ops.transpose(y))

    def ctc(self, logits: Any, labels: Any, lengths: Any, blank: int) -> Any:
        items, steps = logits.shape[:2]
        counts = ops.full((items,), labels.shape[1], "int32") if lengths is None else ops.cast(lengths, "int32")
        given = ops.full((items,), steps, "int32")
        return ops.ctc_loss(ops.cast(labels, "int32"), logits, counts, given, blank)


def keras_loss(loss: Loss, x: Any, t: Any, axis: int, lengths: Any) -> Any:
    """The value of a named loss; see loss_formulas.value."""
    return value(KerasOperations(), loss, x, t, axis, lengths)
