"""A subject that is trained, and what was captured of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import Absent
from ..messages.codec import ReplyType, Request
from ..messages.training import StepTaken, TrainingCaptured
from ..processes.ranks import DevicesWorker, RankedWorker
from ..processes.worker import Worker
from ..workload.optimizers import Optimizer
from ..workload.ranks import Ranks, rank_file


@dataclass(frozen=True)
class Learner:
    """A subject that is trained: its worker, and what the worker reported.

    optimizer: the settings, with the variants in which the framework's own differs from torch's.
    apart: batch norms that each rank computes from its own part of the batch.
    build_key: equal for subjects that build the same model, so that their layers are judged once.
    """

    label: str
    worker: Worker
    optimizer: Optimizer
    dropout_disabled: tuple[str, ...]
    fused_parameters: Mapping[str, tuple[str, ...]]
    build_key: tuple[str, ...]
    apart: tuple[str, ...] = ()

    @property
    def ranks(self) -> Ranks | None:
        """The ranks that train it together; None where there is one."""
        return self.worker.ranks if isinstance(self.worker, (RankedWorker, DevicesWorker)) else None

    @property
    def in_parts(self) -> bool:
        """Whether its ranks compute the layers of their own parts of the batch, so that they show no whole layer."""
        return self.ranks is not None and len(self.of_ranks(self.step_file)) > 1

    def of_ranks(self, path: Path) -> list[Path]:
        """The file of every rank; one where a compiler divides a step. path: that of rank 0, in the folder of its worker."""
        if isinstance(self.worker, DevicesWorker) and self.worker.in_parts:
            return [rank_file(path, rank) for rank in range(self.worker.ranks.count)]
        return [folder / path.name for folder in self.worker.folders]

    def ask_each(self, request: Request[ReplyType]) -> list[ReplyType]:
        """The reply of every process."""
        return self.worker.ask_each(request) if isinstance(self.worker, RankedWorker) else [self.worker.ask(request)]

    @property
    def layer_folder(self) -> Path:
        """The folder of the subject's captured layers."""
        return self.worker.folder / "training-layers"

    @property
    def step_file(self) -> Path:
        """The file of the subject's latest step."""
        return self.worker.folder / "training-step.npz"


@dataclass(frozen=True)
class Observed:
    """What was captured when a subject started from the reference's first state.

    captured: the calls of its layers; Absent: they could not be captured; None: the layers of another subject that builds
        the same model are judged instead.
    step: its first step.
    """

    captured: TrainingCaptured | Absent | None
    step: StepTaken
