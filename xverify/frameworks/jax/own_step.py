"""A user's own training step in JAX: it puts new weights into ``model.weights``, and a new state into the dictionary ``state``."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import jax

from xverify.errors import Unsupported
from xverify.framework.own_state import Slot
from xverify.framework.own_step import BoundStep, Step
from xverify.framework.structures import Natives

# State of optax -> field -> torch's name of what is kept there, where the formula is torch's. ``trace`` is a multiple of torch's
# where the learning rate is applied before it.
KINDS: Mapping[str, Mapping[str, str]] = {
    "ScaleByAdamState": {"mu": "exp_avg", "nu": "exp_avg_sq", "count": "step"},
    "ScaleByAmsgradState": {"mu": "exp_avg", "nu": "exp_avg_sq", "count": "step"},
    "ScaleByLionState": {"mu": "exp_avg", "count": "step"},
    "TraceState": {"trace": "momentum_buffer"},
    "ScaleByRmsState": {"nu": "square_avg"},
    "ScaleByRStdDevState": {"mu": "grad_avg", "nu": "square_avg"},
    "ScaleByRssState": {"sum_of_squares": "sum"},
    "ScaleByAdaDeltaState": {"e_g": "square_avg", "e_x": "acc_delta"},
}


def slots(value: Any) -> list[Slot] | None:
    """What a state of optax keeps; None for a value that is none, and for one that holds other states."""
    kinds = KINDS.get(type(value).__name__)
    if kinds is None or not hasattr(value, "_fields"):
        return None
    return [Slot(kinds.get(key, key), getattr(value, key)) for key in value._fields]


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
