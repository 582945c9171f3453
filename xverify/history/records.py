"""The records of a history: what is read of a file, the points of a series, and what changed in it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import NamedTuple

WORSE, BETTER, OTHER = "worse", "better", "other"  # the effects of a change
REGRESSED, IMPROVED, CHANGED, SAME = "regressed", "improved", "changed", "same"  # the standing of a series
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
MICROSECOND = datetime.timedelta(microseconds=1)


def time_of(microseconds: int) -> datetime.datetime:
    """A time in UTC without a zone, as DuckDB has it. microseconds: since 1970."""
    return (EPOCH + microseconds * MICROSECOND).replace(tzinfo=None)


class Key(NamedTuple):
    """What all results of a series have in common.

    settings: the other settings that change what is measured, and are no defaults, as JSON.
    precision: in which the row was judged; "" where it is not told.
    """

    model: str
    task: str
    subject: str
    batch: int
    threads: int
    device: str
    precision: str
    settings: str
    cpu: str
    cores: int


class Measurement(NamedTuple):
    """One row of a result, as the index keeps it. The fields between the first and the last are columns of ``measurements``.

    verdict: None when there is none; ``status`` then says why.
    rho, floor: the residual in noise floors, and which floor it is.
    ratio, low, high: the time ratio to the baseline, with its interval; None when it does not count.
    compared: whether the interval counts process runs, so that it can be compared with that of another result.
    conditions: name -> value of versions and digests.
    """

    key: Key
    status: str
    verdict: str | None
    reason: str
    rho: float | None
    floor: str
    ratio: float | None
    low: float | None
    high: float | None
    compared: bool
    baseline: str
    fps: float | None
    peak_rss_mib: float | None
    gpu_peak_mib: float | None
    conditions: tuple[tuple[str, str], ...]


class Entry(NamedTuple):
    """A result file. The fields before the last are columns of ``results``. created: microseconds since 1970."""

    model: str
    tasks: str
    verdict: str
    created: int
    xverify: str
    complete: bool
    cpu: str
    cores: int
    system: str
    python: str
    measurements: tuple[Measurement, ...]


class Point(NamedTuple):
    """One result of a series, in the order of time. The fields are those of ``Measurement``; file, conditions: their numbers."""

    file: int
    created: int
    status: str
    verdict: str | None
    reason: str
    rho: float | None
    floor: str
    ratio: float | None
    low: float | None
    high: float | None
    compared: bool
    baseline: str
    peak_rss_mib: float | None
    gpu_peak_mib: float | None
    conditions: int

    @property
    def outcome(self) -> str:
        """The verdict, or the status of a row without one."""
        return self.verdict or self.status


@dataclass(frozen=True)
class Change:
    """A change of one measure from an earlier result of a series to a later one.

    measure: "verdict", "time ratio", "peak memory", "peak memory of the device", or "residual / noise floor".
    effect: WORSE, BETTER or OTHER.
    created: when the later result was made, UTC.
    path: the file of the later result.
    newest: whether the later result is the newest of its series.
    before, after: the values, as text.
    factor: new number / old number; None for a verdict.
    reason: why the new verdict is not EQUAL; "" for other measures.
    meanwhile: the versions and digests that changed between this result and the one before it.
    """

    measure: str
    effect: str
    created: datetime.datetime
    path: str
    newest: bool
    before: str
    after: str
    factor: float | None
    reason: str
    meanwhile: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """All results of one row of one model, measured with the same settings on the same machine.

    number: of the series in the index.
    count: number of its results.
    first, last: when the first and the newest result were made, UTC.
    outcome: the verdict, or the status, of the newest result.
    changes: the newest first.
    """

    number: int
    key: Key
    count: int
    first: datetime.datetime
    last: datetime.datetime
    outcome: str
    changes: tuple[Change, ...]

    @property
    def standing(self) -> str:
        """REGRESSED when the latest change of some measure is WORSE; otherwise IMPROVED, CHANGED or SAME."""
        latest: dict[str, str] = {}
        for change in self.changes:
            latest.setdefault(change.measure, change.effect)
        effects = set(latest.values())
        return REGRESSED if WORSE in effects else IMPROVED if BETTER in effects else CHANGED if effects else SAME

    @property
    def newly_worse(self) -> bool:
        """Whether the newest result is worse than those before it."""
        return any(change.newest and change.effect == WORSE for change in self.changes)


@dataclass(frozen=True)
class Skipped:
    """Files that are not in the history.

    others: number of JSON files that are no results of xverify.
    unreadable: number of files that cannot be read.
    problems: (path, why) of the first of these.
    """

    others: int = 0
    unreadable: int = 0
    problems: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class History:
    """What changed in the series of a folder.

    folder: as the user named it.
    results: number of result files in the folder, whatever was asked for.
    series: those that were asked for: the newly worse first, then regressed, improved, changed, and the same.
    since: changes before this time were not asked for; None when all were.
    skipped: files that are not in it.
    """

    folder: str
    results: int
    series: tuple[Series, ...]
    since: datetime.datetime | None
    skipped: Skipped

    @property
    def comparable(self) -> int:
        """Number of series with two results or more."""
        return sum(each.count > 1 for each in self.series)

    def of(self, *standings: str) -> tuple[Series, ...]:
        """The series with one of these standings."""
        return tuple(each for each in self.series if each.standing in standings)
