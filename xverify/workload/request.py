"""The request for a run: a plain record that any process can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .asked import Asked
from .launch import launch
from .optimizers import Optimizer
from .options import CommonSettings, TrainingSettings
from .ranks import Ranks, ranks


@dataclass(frozen=True, kw_only=True)
class Request(TrainingSettings, CommonSettings):
    """One run of one task: its settings, with all defaults filled in, and the model and subjects that it runs.

    model: the folder of the model.
    subjects: how the subjects are written; the first is the baseline of time ratios. That is the label of each but of a file
        elsewhere (see framework.ports).
    reference: the framework, or the variant of one, whose outputs the others are compared with.
    batch, threads, weights, pin, shards, hosts, data: as in ``CommonSettings`` and ``TrainingSettings``, with all
        defaults filled in.
    python: framework -> interpreter, which the user named or which belongs to an environment.
    optimizer: the optimizer of a training run; None for a forward pass.
    sizes: name of an axis that the user gave a size -> the size that is timed; the batch is called "batch".
    other_sizes: the other sizes at which outputs are compared.
    notes: what the user should know about this run.
    asked: the command that asks for it.
    """

    model: str
    subjects: tuple[str, ...]
    reference: str
    batch: int
    threads: int
    weights: str | None = None
    pin: tuple[int, ...] = ()
    shards: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    data: str | None = None
    python: Mapping[str, str] = field(default_factory=dict)
    optimizer: Optimizer | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    other_sizes: tuple[Mapping[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    asked: Asked = Asked()  # noqa: RUF009  frozen

    @property
    def trains(self) -> bool:
        """Whether the run trains the model."""
        return self.task == "train"

    @property
    def divided(self) -> Ranks | None:
        """The ranks of every subject; None where it trains in one process."""
        found = ranks(self.ranks, self.plan, self.shards, self.batch)
        return found and replace(found, launch=launch(self.launcher, self.hosts, self.rendezvous, self.ranks))

    @property
    def decodes(self) -> bool:
        """Whether the run computes sequences in every way."""
        return self.task == "decode"
