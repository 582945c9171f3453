"""Where a training step computes a value that is not finite."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import SubjectError
from ..messages.training import CaptureTraining, TrainingState, Trajectory
from ..processes.worker import Worker


def where_it_diverges(worker: Worker, start: TrainingState, step: int, inputs: Path, layers: tuple[str, ...]) -> str:
    """The first layer whose output is not finite at this step, as the end of a sentence.

    start: the state before the first step. inputs: the file of the batches. layers: canonical names of layers.
    """
    folder = worker.folder / "diverged"
    folder.mkdir(exist_ok=True)
    try:
        states = worker.ask(Trajectory(state=start, at=(step,), folder=str(folder)))
        captured = worker.ask(CaptureTraining(state=states[-1], inputs=str(inputs), folder=str(folder), wanted=layers))
    except SubjectError as error:
        return f" (after step {step - 1}: {error})"
    for record in captured.records:
        if not all(np.isfinite(np.load(folder / file)).all() for file in record.outputs):
            return f": it begins in {record.name}"
    return ": it begins in the loss"
