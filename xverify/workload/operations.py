"""The dozen array operations from which losses, optimizers, clips and averages are computed, the same ones of every framework."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

Tensor = Any  # an array of numpy, or a tensor of any framework


class Operations:
    """The operations of one framework, for tensors that have shapes, comparisons and + - * / **.

    Tensors broadcast as in numpy; axes may be negative. A subclass replaces what its framework writes in another way.

    module: has functions under numpy's names.
    """

    def __init__(self, module: Any) -> None:
        self.module = module

    def exp(self, x: Tensor) -> Tensor:
        return self.module.exp(x)

    def log(self, x: Tensor) -> Tensor:
        return self.module.log(x)

    def sqrt(self, x: Tensor) -> Tensor:
        return self.module.sqrt(x)

    def absolute(self, x: Tensor) -> Tensor:
        return self.module.abs(x)

    def sign(self, x: Tensor) -> Tensor:
        """-1, 0 or 1 for each value."""
        return self.module.sign(x)

    def where(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Take x where the condition holds, otherwise y; both are tensors of the condition's shape."""
        return self.module.where(condition, x, y)

    def maximum(self, x: Tensor, y: Tensor | float) -> Tensor:
        """The larger value of each pair."""
        return self.module.maximum(x, y)

    def minimum(self, x: Tensor, y: Tensor | float) -> Tensor:
        """The smaller value of each pair."""
        return self.module.minimum(x, y)

    def clip(self, x: Tensor, limit: float) -> Tensor:
        """Limit every value to the range from -limit to limit."""
        return self.module.clip(x, -limit, limit)

    def sum(self, x: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
        """The sum over an axis, or over all. keep: the axis stays, with size 1."""
        return self.module.sum(x, axis, keepdims=keep)

    def mean(self, x: Tensor, axis: int | None) -> Tensor:
        """The mean over one axis, or over all; the axes stay, with size 1."""
        return self.module.mean(x, axis, keepdims=True)

    def largest(self, x: Tensor, axis: int) -> Tensor:
        """The largest value along an axis, which stays with size 1. No gradient passes it."""
        raise NotImplementedError

    def expanded(self, x: Tensor, axis: int) -> Tensor:
        """x with a new axis of size 1."""
        return self.module.expand_dims(x, axis)

    def constant(self, array: NDArray[Any], like: Tensor) -> Tensor:
        """A tensor of these values, with the dtype and device of another one."""
        raise NotImplementedError

    def cast(self, x: Tensor, like: Tensor) -> Tensor:
        """x with the dtype of another tensor."""
        return self.module.asarray(x, like.dtype)

    def product(self, x: Tensor, y: Tensor) -> Tensor:
        """The matrix x times the transposed matrix y."""
        return x @ y.T

    def ctc(self, logits: Tensor, labels: Tensor, lengths: Tensor | None, blank: int) -> Tensor:
        """The CTC loss of every item, (N,). logits: (N, T, C). labels: (N, S). lengths: (N,), or None for S."""
        raise NotImplementedError


@cache
def of_numpy() -> Operations:
    """The operations of numpy, which is imported late: `xverify run --help` needs no numpy."""
    import numpy as np

    return Operations(np)
