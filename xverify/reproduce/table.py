"""The rows of a reproduced table. A row has the measured and published figures of one subject, over all repeats."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from ..report.rows import why_not_counted
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
    elapsed: seconds of all timed steps, also those of noisy rounds, one number for each repeat.
    seconds_per_step: of quiet rounds, so it is not elapsed / steps; the geometric mean of the repeats.
    ratio: its time divided by the first row's time, in the same rounds; the geometric mean of the repeats.
    range: items a second, from the lowest to the highest end of the repeats' intervals.
    counted: whether its speed counts. not_counted: why it does not, in a few words; "" when the outcome says it.
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
    seconds_per_step: float | None = None
    ratio: float | None = None
    range: Range | None = None
    counted: bool = True
    not_counted: str | None = None
    peak_mib: float | None = None
    average_mib: float | None = None
    relative_error: float | None = None
    mean_abs: float | None = None
    weights: str = "-"
    published: dict[str, Published] = field(default_factory=dict)

    @property
    def elapsed_seconds(self) -> float | None:
        return statistics.fmean(self.elapsed) if self.elapsed else None

    @property
    def rate(self) -> float | None:
        return None if self.seconds_per_step is None else self.batch / self.seconds_per_step

    def to_dict(self) -> dict[str, object]:
        """JSON values, with the derived figures."""
        derived = ("elapsed_seconds", "rate")
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
    steps = max((row.speed.calls for row in rows if row.speed is not None), default=steps)
    timed = [(result, row, row.speed) for result, row in found if row.speed is not None and row.speed.calls == steps]
    # A repeat in which a noise gate refused the speed is left out. Any other reason speaks against the whole row.
    faulty = [row for row in rows if row.speed is not None and not (row.speed.counted or row.speed.noisy)]
    counting = [] if faulty else [each for each in timed if each[2].counted]
    shown = counting or timed
    doubted = next(iter(faulty or [row for _, row, speed in timed if not speed.counted]), None)
    errors = [row.error for row in rows if row.error is not None]
    ratios = [
        speed.ratio
        for result, row, speed in shown
        if speed.ratio is not None and result.baseline(row).counted is not None
    ]
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
        reason=next(filter(None, (row.why for row in rows)), None)
        or (failure if not rows else _doubt(doubted, bool(counting))),
        elapsed=tuple(speed.elapsed_seconds for _, _, speed in timed),
        seconds_per_step=_mean([speed.seconds_per_step for _, _, speed in shown]),
        ratio=_mean(ratios),
        range=_range([speed for _, _, speed in shown]),
        counted=bool(counting) or doubted is None,
        not_counted=why_not_counted(doubted) if doubted is not None and not counting else None,
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


def _doubt(doubted: Row | None, others_count: bool) -> str | None:
    """Why the speed of this row does not count. others_count: whether other repeats do, so that only this one is left out."""
    if doubted is None or doubted.speed is None:
        return None
    return ("a repeat is left out: " if others_count else "") + (doubted.speed.reason or "")


def _mean(values: Sequence[float]) -> float | None:
    """The geometric mean, as over process runs; None without values."""
    return statistics.geometric_mean(values) if values else None


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
