"""The operations of JAX, from which the named losses are computed."""

from __future__ import annotations

from typing import Any

import jax
from jax import numpy as jnp

from xverify.framework.adapter import Array
from xverify.workload.loss_formulas import value
from xverify.workload.losses import Loss


class JaxOperations:
    """See loss_formulas.Operations."""

    def exp(self, x: Any) -> Any:
        return jnp.exp(x)

    def log(self, x: Any) -> Any:
        return jnp.log(x)

    def sqrt(self, x: Any) -> Any:
        return jnp.sqrt(x)

    def absolute(self, x: Any) -> Any:
        return jnp.abs(x)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return jnp.where(condition, x, y)

    def sum(self, x: Any, axis: int | None = None, keep: bool = False) -> Any:
        return jnp.sum(x, axis, keepdims=keep)

    def largest(self, x: Any, axis: int) -> Any:
        return jax.lax.stop_gradient(jnp.max(x, axis, keepdims=True))

    def expanded(self, x: Any, axis: int) -> Any:
        return jnp.expand_dims(x, axis)

    def constant(self, array: Array, like: Any) -> Any:
        return jnp.asarray(array, like.dtype)

    def cast(self, x: Any, like: Any) -> Any:
        return jnp.asarray(x, like.dtype)

    def product(self, x: Any, y: Any) -> Any:
        return x @ y.T

    def ctc(self, logits: Any, labels: Any, lengths: Any, blank: int) -> Any:
        import optax

        count = labels.shape[1]
        counts = jnp.full((labels.shape[0],), count) if lengths is None else lengths
        beyond = jnp.asarray(jnp.arange(count) >= counts[:, None], logits.dtype)
        return optax.ctc_loss(logits, jnp.zeros(logits.shape[:2], logits.dtype), labels, beyond, blank_id=blank)


def jax_loss(loss: Loss, x: Any, t: Any, axis: int, lengths: Any) -> Any:
    """The value of a named loss; see loss_formulas.value."""
    return value(JaxOperations(), loss, x, t, axis, lengths)
