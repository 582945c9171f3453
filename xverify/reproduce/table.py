"""The rows of a reproduced table. A row has the measured and published figures of one subject, over all repeats."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from ..report.rows import refused
from ..results.records import Result, Row, Speed
from ..results.verdicts import Verdict
from .records import Entry, Experiment, Part, PartRun

Range = tuple[float, float]


@dataclass(frozen=True)
class Published:
    """A published figure in the units of the table: (lowest, highest)."""

    seconds_per_step: Range
    rate: Range
    gigabytes: float | None
    named: str


@dataclass(frozen=True)
class TableRow:
    """One subject of a part, over all repeats.

    steps: timed steps of a repeat.
    outcome: the worst verdict on its results, or the status of a row that could not run.
    reason: why the row is not EQUAL, or why its speed does not count.
    elapsed: seconds of all timed steps, one number for each repeat.
    ratio: its time divided by the first row's time.
    range: items a second, from the lowest to the highest end of the repeats' intervals.
    counted: whether its speed counts.
    peak_mib, average_mib: the most memory of any repeat.
    relative_error, mean_abs: the largest error of any repeat.
    weights: "identical" when every repeat read back the reference's weights, "DIFFERENT" when one did not, "-" when not known.
    published: name of a source -> published figure.
    """

    subject: str
    framework: str
    jit: str
    batch: int
    warmup: int
    steps: int
    optimizer: str | None
    lr: float | None
    outcome: str
    reason: str | None = None
    elapsed: tuple[float, ...] = ()
    ratio: float | None = None
    range: Range | None = None
    counted: bool = True
    peak_mib: float | None = None
    average_mib: float | None = None
    relative_error: float | None = None
    mean_abs: float | None = None
    weights: str = "-"
    published: dict[str, Published] = field(default_factory=dict)

    # Only ``elapsed`` is measured; the other figures are computed from it: elapsed = steps × seconds a step in every row.

    @property
    def elapsed_seconds(self) -> float | None:
        return statistics.fmean(self.elapsed) if self.elapsed else None

    @property
    def seconds_per_step(self) -> float | None:
        return None if self.elapsed_seconds is None else self.elapsed_seconds / self.steps

    @property
    def rate(self) -> float | None:
        return None if self.seconds_per_step is None else self.batch / self.seconds_per_step

    def to_dict(self) -> dict[str, object]:
        """JSON values, with the derived figures."""
        derived = ("elapsed_seconds", "seconds_per_step", "rate")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}

    def overlaps(self, other: TableRow) -> bool:
        """Whether the intervals of the two speeds overlap, so that neither row is known to be faster."""
        if self.range is None or other.range is None:
            return False
        return max(self.range[0], other.range[0]) <= min(self.range[1], other.range[1])


def table_rows(experiment: Experiment, part: Part, scale: float, runs: Sequence[PartRun]) -> list[TableRow]:
    """The rows of the table of a part. runs: those of this part."""
    results = [run.result for run in runs if run.result is not None]
    failure = next((run.failure for run in runs if run.failure), None)
    return [_table_row(experiment, part, scale, entry, results, failure) for entry in part.entries]


def _table_row(
    experiment: Experiment, part: Part, scale: float, entry: Entry, results: list[Result], failure: str | None
) -> TableRow:
    warmup, steps = part.scaled(scale)
    found = [(result, row) for result in results for row in result.rows if row.subject == entry.subject]
    rows = [row for _, row in found]
    # A run that ended early timed fewer steps. All figures are those of the repeats with the most steps.
    speeds = [row.speed for row in rows if row.speed is not None]
    steps = max((speed.calls for speed in speeds), default=steps)
    longest = [speed for speed in speeds if speed.calls == steps]
    errors = [row.error for row in rows if row.error is not None]
    ratios = [speed.ratio for speed in longest if speed.ratio is not None]
    return TableRow(
        subject=entry.subject,
        framework=entry.subject.partition(":")[0],
        jit=entry.jit,
        batch=part.batch,
        warmup=warmup,
        steps=steps,
        optimizer=part.optimizer,
        lr=part.lr,
        outcome=_outcome(rows),
        reason=next(filter(None, map(_reason, rows)), None) or (failure if not rows else None),
        elapsed=tuple(speed.elapsed_seconds for speed in longest),
        ratio=statistics.fmean(ratios) if ratios else None,
        range=_range(longest),
        counted=not any(refused(row) for row in rows),
        peak_mib=_most(row.memory.peak_rss_mib for row in rows),
        average_mib=_most(row.memory.average_rss_mib for row in rows),
        relative_error=_most(error.rel_rms for error in errors),
        mean_abs=_most(error.mean_abs for error in errors),
        weights=_weights(found),
        published=_published(experiment, part, entry),
    )


def _outcome(rows: Sequence[Row]) -> str:
    """The status of the first row that could not run; otherwise the worst verdict."""
    failed = next((row.status for row in rows if row.status != "ok"), None)
    verdicts = [Verdict(row.error.verdict) for row in rows if row.error is not None]
    return failed or (Verdict.worst(verdicts) if verdicts else "failed")


def _reason(row: Row) -> str | None:
    if row.reason or (row.error is not None and row.error.reason):
        return row.reason or (row.error.reason if row.error else None)
    return row.speed.reason if refused(row) and row.speed else None


def _range(speeds: Sequence[Speed]) -> Range | None:
    """From the lowest to the highest end of these speeds' intervals, items a second; None without an interval."""
    ends = [end for speed in speeds for end in speed.fps_ci]
    known = [end for end in ends if end is not None]
    return (min(known), max(known)) if known and len(known) == len(ends) else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _weights(found: Sequence[tuple[Result, Row]]) -> str:
    if not found or any(row.weights_digest is None for _, row in found):
        return "-"
    equal = all(row.weights_digest == result.weights.digest for result, row in found)
    return "identical" if equal else "DIFFERENT"


def _published(experiment: Experiment, part: Part, entry: Entry) -> dict[str, Published]:
    sources = {source.name: source for source in experiment.sources}
    return {
        name: Published(
            part.per_step(figure, sources[name]),
            part.per_second(figure, sources[name]),
            figure.gigabytes,
            figure.named,
        )
        for name, figure in entry.figures.items()
    }
