"""A user's own training step in JAX: it puts new weights into ``model.weights``, and a new state into the dictionary ``state``."""

from __future__ import annotations

from copy import copy
from typing import Any

import jax

from xverify.errors import Unsupported
from xverify.framework.own_step import BoundStep, Step
from xverify.framework.structures import Natives


def computed(step: BoundStep, mode: str) -> Step:
    """The step in a mode, with everything computed that it changes.

    In the mode jit the whole step is compiled, as a function of the weights, the state and the batch.
    """
    function = _compiled(step) if mode == "jit" else step

    def call(batch: Natives) -> Any:
        losses = function(batch)
        jax.block_until_ready((step.model.weights, step.state))
        return losses

    return call


def _compiled(step: BoundStep) -> Step:
    model, state = step.model, step.state
    if state is not None and not isinstance(state, dict):
        raise Unsupported(
            f"a compiled step changes a dictionary, and train_state returns a {type(state).__name__}: return a dictionary of "
            "arrays, or name jax:eager and put jax.jit around a part of the step"
        )

    def pure(weights: Any, state: Any, batch: Natives) -> Any:
        own = copy(model)
        own.weights = weights
        return step.function(own, state, batch), own.weights, state

    compiled = jax.jit(pure)

    def call(batch: Natives) -> Any:
        losses, model.weights, after = compiled(model.weights, state, batch)
        if state is not None:
            state.clear()
            state.update(after)
        return losses

    return call
