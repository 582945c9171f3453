"""The record of a candidate for the training-parity checks."""

from __future__ import annotations

from ..training.parity import Learner
from ..worker.process import Worker
from .stages import Built, Subject, Warmed


def learner(subject: Subject, worker: Worker, built: Built, warmed: Warmed, match_optimizer: bool) -> Learner:
    """The record of a candidate whose warm-up is complete. match_optimizer: whether it computes torch's formula."""
    assert warmed.optimizer is not None
    return Learner(
        label=subject.label,
        worker=worker,
        optimizer=warmed.optimizer,
        dropout_disabled=warmed.dropout_disabled,
        fused_parameters=built.fused_parameters,
        build_key=(*subject.build_key, str(match_optimizer)),
    )
