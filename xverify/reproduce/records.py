"""The records of a published experiment: its question, its settings, its published figures, and the runs made here.

Measured and published figures are compared per step or per item, so that a scaled run can be compared, too. --scale takes a share
of the steps; it never makes a model smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from ..errors import UsageError
from ..results.records import Result, Row, overall
from ..results.verdicts import Outcome
from ..training.curve import LONG_STEP

LEAST_WARMUP, LEAST_STEPS = 1, 2  # the engine makes two steps before the warm-up; an interval needs two timed blocks
SCALES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
# Number of steps that the training-parity checks need: of each row, and of the reference. It does not depend on the scale. It is
# smaller when a step is so long that a quick run draws no loss curve.
JUDGING, JUDGING_REFERENCE = 15, 45
JUDGING_LONG, JUDGING_REFERENCE_LONG = 3, 12
QUICK_SECONDS = 600.0  # a scaled run that is proposed to the user takes less than this
LEAST_TIMEOUT = 1800.0  # seconds
WHERE = "two cores of an AMD EPYC"  # the machine of Entry.seconds and Part.overhead
# Modes whose operations are compiled while the program runs. A TensorFlow graph alone is not JIT: TensorFlow's JIT is XLA.
JIT = ("torch:trace", "torch:script", "torch:compile", "tensorflow:xla", "jittor", "jax", "keras-jax")


@dataclass(frozen=True)
class Source:
    """A source of published figures.

    name: of the column in the table.
    hardware, versions: as published.
    batch: the batch of these figures; None: that of the part.
    """

    name: str
    hardware: str
    versions: str
    batch: int | None = None

    def describe(self) -> str:
        parts = [self.hardware, self.versions, f"batch {self.batch}" if self.batch else ""]
        return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class Figure:
    """A published figure of a row.

    seconds: of all timed steps, (lowest, highest).
    rate: items a second, when no seconds were published.
    gigabytes: memory of the device.
    named: the name of the published row; "" when it is the subject's.
    """

    seconds: tuple[float, float] | None = None
    rate: float | None = None
    gigabytes: float | None = None
    named: str = ""


@dataclass(frozen=True)
class Entry:
    """One subject of a part.

    seconds: of a step on the machine WHERE; used only for the expected duration.
    figures: name of a source -> figure.
    extra: whether the published table does not have this row.
    """

    subject: str
    seconds: float
    figures: Mapping[str, Figure] = field(default_factory=dict)
    extra: bool = False

    @property
    def jit(self) -> str:
        return "on" if self.subject in JIT else "off"


class PartSettings(TypedDict, total=False):
    """The settings of one run of the engine, without its model and subjects."""

    task: str
    batch: int
    warmup: int
    rerun: int
    cases: int
    threads: int | None
    timeout: float
    optimizer: str | None
    lr: float | None
    data: str | None


@dataclass(frozen=True)
class Part:
    """One model with one task. One run of the engine measures it.

    batch: items a step.
    warmup, steps: number of steps before timing and of timed steps, as published.
    optimizer, lr: for training; None for a forward pass.
    cases: number of different batches that are used in turn.
    threads: None: all cores.
    overhead: seconds to start and to judge on the machine WHERE.
    """

    model: str
    task: str
    batch: int
    warmup: int
    steps: int
    entries: tuple[Entry, ...]
    optimizer: str | None = None
    lr: float | None = None
    cases: int = 4
    threads: int | None = None
    overhead: float = 60.0

    @property
    def title(self) -> str:
        training = f", {self.optimizer} with learning rate {self.lr:g}" if self.optimizer else ""
        return f"{self.model}, {self.task}, batch {self.batch}{training}"

    def scaled(self, scale: float) -> tuple[int, int]:
        """(warm-up steps, timed steps) at this scale."""
        return max(LEAST_WARMUP, round(scale * self.warmup)), max(LEAST_STEPS, round(scale * self.steps))

    def duration(self, scale: float) -> float:
        """The expected seconds on the machine WHERE."""
        steps = [entry.seconds for entry in self.entries]
        rows, reference = (
            (JUDGING_LONG, JUDGING_REFERENCE_LONG) if steps[0] > LONG_STEP else (JUDGING, JUDGING_REFERENCE)
        )
        judging = rows * sum(steps) + reference * steps[0] if self.task == "train" else 0.0
        return self.overhead + judging + sum(self.scaled(scale)) * sum(steps)

    def settings(self, scale: float, data: str | None) -> PartSettings:
        """The settings of ``engine.run``.

        data: folder of the data set; None: synthetic batches.
        """
        warmup, steps = self.scaled(scale)
        # One request to a worker makes at most the warm-up or a twentieth of the steps. Ten times as long is a hang.
        longest = max(warmup, steps / 20) * max(entry.seconds for entry in self.entries)
        settings: PartSettings = {
            "task": self.task, "batch": self.batch, "warmup": warmup, "rerun": steps, "cases": self.cases,
            "threads": self.threads, "timeout": max(LEAST_TIMEOUT, 10 * longest),
        }  # fmt: skip
        if self.task == "train":
            settings |= {"optimizer": self.optimizer, "lr": self.lr, "data": data}
        return settings

    def per_step(self, figure: Figure, source: Source) -> tuple[float, float]:
        """A published figure as seconds a step: (lowest, highest)."""
        if figure.seconds is not None:
            return figure.seconds[0] / self.steps, figure.seconds[1] / self.steps
        assert figure.rate is not None
        step = (source.batch or self.batch) / figure.rate
        return step, step

    def per_second(self, figure: Figure, source: Source) -> tuple[float, float]:
        """A published figure as items a second: (lowest, highest)."""
        low, high = self.per_step(figure, source)
        batch = source.batch or self.batch
        return batch / high, batch / low


@dataclass(frozen=True)
class Experiment:
    """A published experiment.

    question: the question that it answers.
    parts: its tables.
    sources: the sources of its figures.
    by: the unit in which figures are compared: "step" (seconds a step) or "item" (items a second).
    repeats: number of repeats, as published.
    data: its data set; "" for random data.
    installed: the folder in which a Debian package installs this data set; "" when there is no such package.
    notes: further sentences for the reader of the table.
    """

    name: str
    question: str
    parts: tuple[Part, ...]
    sources: tuple[Source, ...] = ()
    by: str = "item"
    repeats: int = 1
    data: str = ""
    installed: str = ""
    notes: tuple[str, ...] = ()

    def duration(self, scale: float, repeats: int = 1) -> float:
        """The expected seconds on the machine WHERE."""
        return repeats * sum(part.duration(scale) for part in self.parts)

    def place(self, part: Part) -> int:
        """The index of a part. Two parts may be equal, so they are compared by identity."""
        return next(index for index, each in enumerate(self.parts) if each is part)

    def quick_scale(self) -> float:
        """The largest of SCALES with a duration below QUICK_SECONDS; the smallest of SCALES when there is none."""
        return next((scale for scale in SCALES if self.duration(scale) < QUICK_SECONDS), SCALES[-1])

    def default_repeats(self, scale: float) -> int:
        """The published number of repeats at scale 1, and one repeat at a smaller scale."""
        return self.repeats if scale == 1 else 1


@dataclass(frozen=True)
class PartRun:
    """One run of a part.

    repeat: index of the repeat.
    result: None when there is none.
    failure: why there is no result; "" when there is one.
    """

    part: Part
    repeat: int
    result: Result | None = None
    failure: str = ""

    @property
    def verdict(self) -> str:
        return overall(self.counted()) if self.result is not None else Outcome.ERROR

    def counted(self) -> list[Row]:
        """The rows that the exit code depends on. An extra row that cannot run here does not count."""
        extra = {entry.subject for entry in self.part.entries if entry.extra}
        absent = ("unsupported", "not-installed")
        rows = self.result.rows if self.result is not None else ()
        return [row for row in rows if row.subject not in extra or row.status not in absent]


@dataclass(frozen=True)
class Reproduction:
    """An experiment with the runs made so far.

    data: a description of the source of batches.
    created: the time of its start, ISO 8601.
    stopped: why it ended early; "" when it did not.
    """

    experiment: Experiment
    scale: float
    repeats: int
    data: str
    created: str
    part_runs: tuple[PartRun, ...] = ()
    stopped: str = ""

    @property
    def complete(self) -> bool:
        return len(self.part_runs) == self.repeats * len(self.experiment.parts) and not self.stopped

    @property
    def verdict(self) -> Outcome:
        """The worst verdict of its runs. An incomplete reproduction is at least an ERROR, unless a run fails."""
        found = {run.verdict for run in self.part_runs} | (set() if self.complete else {Outcome.ERROR})
        return next(
            (each for each in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE) if each in found), Outcome.PASS
        )

    def of(self, part: Part) -> list[PartRun]:
        return [run for run in self.part_runs if run.part is part]


def check_scale(scale: float) -> None:
    """Raise UsageError when a scale is not above 0 and at most 1."""
    if not (0 < scale <= 1):
        raise UsageError(
            f"--scale is {scale:g}: it must be above 0 and at most 1, e.g. 0.02 for a fiftieth of the steps"
        )
