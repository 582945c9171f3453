"""The operations of JAX."""

from __future__ import annotations

from typing import Any

import jax
from jax import numpy as jnp

from xverify.framework.adapter import Array
from xverify.workload.operations import Operations


class JaxOperations(Operations):
    def __init__(self) -> None:
        super().__init__(jnp)

    def largest(self, x: Any, axis: int) -> Any:
        return jax.lax.stop_gradient(jnp.max(x, axis, keepdims=True))

    def constant(self, array: Array, like: Any) -> Any:
        return jnp.asarray(array, like.dtype)

    def ctc(self, logits: Any, labels: Any, lengths: Any, blank: int) -> Any:
        import optax

        count = labels.shape[1]
        counts = jnp.full((labels.shape[0],), count) if lengths is None else lengths
        beyond = jnp.asarray(jnp.arange(count) >= counts[:, None], logits.dtype)
        return optax.ctc_loss(logits, jnp.zeros(logits.shape[:2], logits.dtype), labels, beyond, blank_id=blank)
