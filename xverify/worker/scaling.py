"""Steps that show how a float16 run scales its loss: a usual step, one whose gradients overflow, and the last of an interval."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..framework.training import INTERVAL, Training
from ..messages.training import Scaling, TrainingState, TrainingStep
from ..weights.canonical import Arrays
from .state import State

OVERFLOW = 2.0**100  # a scale with which the gradients of any model are infinite in float16


class Session(Protocol):
    """What is needed of a TrainingSession."""

    state: State
    learner: Training

    def set(self, begin: TrainingState) -> None:
        """Set weights, running statistics and optimizer state."""

    def weights_now(self) -> Arrays:
        """The present weights by their canonical names."""


def scaled_steps(session: Session, request: TrainingStep) -> Scaling:
    """Make the steps from the state of the request, with its batch."""
    state, learner = session.state, session.learner

    def after(scale: float, counted: int) -> tuple[float, int]:
        """What a step makes of this scale, and of the number of steps that are counted."""
        session.set(request.state)
        learner.set_scaler(scale, counted)
        state.runner.wait(state.call(*state.cases[request.case]))
        return learner.scaler_state()

    session.set(request.state)
    scale, before = learner.scaler_state()[0], session.weights_now()
    after_step, counted = after(scale, 0)
    after_interval, _ = after(scale, INTERVAL - 1)
    after_overflow, overflow_counted = after(OVERFLOW, 1)
    now = session.weights_now()
    trained = [state.canonical_names[name] for name in learner.names]
    moved = sum(not np.array_equal(before[name], now[name]) for name in trained)
    return Scaling(
        scale, INTERVAL, after_step, counted, OVERFLOW, after_overflow, overflow_counted, moved, after_interval
    )
