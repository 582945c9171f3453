"""The operations of Keras, on any backend."""

from __future__ import annotations

from typing import Any

from keras import ops

from xverify.framework.adapter import Array
from xverify.workload.operations import Operations


class KerasOperations(Operations):
    def __init__(self) -> None:
        super().__init__(ops)

    def largest(self, x: Any, axis: int) -> Any:
        return ops.stop_gradient(ops.max(x, axis, keepdims=True))

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
