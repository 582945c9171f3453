"""Trainings in which every step begins with the state that the one before it has left: with a recipe, or by the files' own step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from ..messages.own_step import OwnLossCurve
from ..messages.training import LossCurve, TrainingState
from ..processes.worker import Worker

# The losses of each step, by name. The one loss of a recipe has the name "".
Losses = Mapping[str, tuple[float, ...]]
# Trains a model whose training is prepared: (worker, file of its weights, number of steps, index of the batch of each step) -> the
# losses, up to the first step that has one that is not finite. The index () takes one batch after another.
FreeRun = Callable[[Worker, Path, int, tuple[int, ...]], Losses]


def by_recipe(worker: Worker, weights: Path, steps: int, order: tuple[int, ...] = ()) -> Losses:
    """Train with the optimizer and the recipe of the run. See ``FreeRun``."""
    state = TrainingState(weights=str(weights), optimizer_state="", steps=0)
    return {"": worker.ask(LossCurve(state=state, steps=steps, order=order))}


def by_own_step(worker: Worker, weights: Path, steps: int, order: tuple[int, ...] = ()) -> Losses:
    """Train with ``train_step`` of the model files. See ``FreeRun``."""
    found = worker.ask(OwnLossCurve(weights=str(weights), steps=steps, order=order))
    return {name: tuple(losses[name] for losses in found) for name in found[0] if all(name in each for each in found)}


def broken(losses: Losses) -> tuple[str, int] | None:
    """The loss that is not finite in the last step, and the number of this step; None where there is none."""
    return next(((name, len(each) - 1) for name, each in losses.items() if not math.isfinite(each[-1])), None)
