"""The training-parity checks of a run, and the record of a candidate for them."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from ..processes.worker import Worker
from ..reference.build import Prepared, ReferenceProcess
from ..results.precision import Precision
from ..results.records import Error, Training
from ..training.learner import Learner
from ..training.own_parity import OwnStepParity
from ..training.parity import TrainingParity
from ..verdict.limits import UNITS
from ..workload.objective import has_own_step
from ..workload.request import Request
from .stages import Built, Subject, Warmed

Observed = TypeVar("Observed")


class Parity(Protocol[Observed]):
    """The checks of all subjects of a run: those of a training step of xverify, or of the model files' own."""

    layers: tuple[str, ...]

    def prepare(self, *, seconds: float = 0.0, left: float | None = None) -> None:
        """Train the reference; see TrainingParity."""

    def prepare_more(self, left: float | None) -> None:
        """Prepare what other options ask for; see TrainingParity."""

    def observe(self, learner: Learner) -> Observed:
        """Let a subject make its steps, without the reference's process."""

    def judge(self, learner: Learner, observed: Observed) -> tuple[Error, Training]:
        """Run all checks of a subject."""

    def wrong_weights(self, error: Error) -> Training:
        """The record of a subject with other weights."""

    def judge_again(self, learner: Learner, error: Error) -> Error:
        """Judge a later process run."""


def parity(process: ReferenceProcess, prepared: Prepared) -> Parity[Any]:
    """The checks of this run."""
    return OwnStepParity(process, prepared) if has_own_step(process.folder) else TrainingParity(process, prepared)


def learner(subject: Subject, worker: Worker, built: Built, warmed: Warmed, match_optimizer: bool) -> Learner:
    """The record of a candidate whose warm-up is complete. match_optimizer: whether it computes torch's formula."""
    assert warmed.optimizer is not None
    return Learner(
        label=subject.label,
        worker=worker,
        optimizer=warmed.optimizer,
        dropout_disabled=warmed.dropout_disabled,
        fused_parameters=built.fused_parameters,
        build_key=(*subject.build_key, str(match_optimizer), str(subject.ranks)),
        apart=warmed.apart,
    )


def precision(request: Request, training: Training | None) -> Precision | None:
    """The precision at which the verdict on a training run holds; None where it is float32. training: what was judged."""
    if request.optimizer is None:
        return None
    name = request.optimizer.recipe.precision
    if training is not None and training.own_step:
        name = training.precision
    if name not in UNITS:
        return None
    return Precision(says=f"{name}, with weights in float32", name=name, weights="float32", computed=name)
