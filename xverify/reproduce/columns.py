"""The columns of a reproduced table. Cells are plain text, to which the terminal and Markdown add their own markup."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..report import numbers
from ..report.rows import rate_unit
from ..report.tables import Column
from ..workload.spec import find_model
from .records import Experiment, Part
from .table import TableRow

# The order in which columns are left out of a table that is too wide. The published memory is the last; other columns are kept.
DISPENSABLE = (
    "mean |Δ|", "average MiB", "time ratio", "batch", "lr", "optimizer", "peak MiB", "elapsed s", "weights", "steps",
)  # fmt: skip
GIGABYTES = "published GB"


def columns(experiment: Experiment, part: Part, rows: Sequence[TableRow]) -> list[Column[TableRow]]:
    """The columns for which the part has figures."""
    return [*_setup(part), *_measured(part), *_published(experiment, part, rows)]


def dispensable(shown: Sequence[Column[TableRow]]) -> list[str]:
    """The titles of the columns that can be left out, in this order."""
    return [*DISPENSABLE, *(column.title for column in shown if column.title.startswith(GIGABYTES))]


def rate(part: Part) -> str:
    """The title of the column of items a second."""
    return rate_unit(find_model(part.model).spec.item)


def _setup(part: Part) -> list[Column[TableRow]]:
    shown: list[Column[TableRow]] = [
        Column("subject", lambda row: row.subject, left=True),
        Column("JIT", lambda row: row.jit),
        Column("steps", lambda row: numbers.whole(row.steps)),
        Column("batch", lambda row: str(row.batch)),
    ]
    if part.task == "train":
        shown.append(Column("lr", lambda row: f"{row.lr:g}"))
        shown.append(Column("optimizer", lambda row: str(row.optimizer)))
    return shown


def _measured(part: Part) -> list[Column[TableRow]]:
    return [
        Column("elapsed s", _elapsed),
        Column("s/step", lambda row: numbers.seconds(row.seconds_per_step if row.counted else None)),
        Column(rate(part), lambda row: numbers.figure(row.rate)),
        Column("time ratio", lambda row: numbers.decimals(row.ratio if row.counted else None, 3)),
        Column("peak MiB", lambda row: numbers.whole(row.peak_mib)),
        Column("average MiB", lambda row: numbers.whole(row.average_mib)),
        Column("mean |Δ|", lambda row: numbers.error(row.mean_abs)),
        Column("relative error", lambda row: numbers.error(row.relative_error)),
        Column("verdict", lambda row: row.outcome, left=True),
        Column("weights", lambda row: row.weights, left=True),
    ]


def _published(experiment: Experiment, part: Part, rows: Sequence[TableRow]) -> list[Column[TableRow]]:
    unit = "s/step" if experiment.by == "step" else rate(part)
    shown = []
    for source in experiment.sources:
        found = [row.published[source.name] for row in rows if source.name in row.published]
        if found:
            shown.append(Column(f"published {unit}, {source.name}", _figure(source.name, experiment.by)))
        if any(each.gigabytes for each in found):
            shown.append(Column(f"{GIGABYTES}, {source.name}", _gigabytes(source.name)))
    return shown


def _elapsed(row: TableRow) -> str:
    if row.elapsed_seconds is None or not row.counted:
        return numbers.ABSENT
    text = numbers.figure(row.elapsed_seconds)
    if len(row.elapsed) == 1:
        return text
    return numbers.interval(text, numbers.figure(min(row.elapsed)), numbers.figure(max(row.elapsed)))


def _figure(source: str, by: str) -> Callable[[TableRow], str]:
    def cell(row: TableRow) -> str:
        found = row.published.get(source)
        if found is None:
            return numbers.ABSENT
        low, high = found.seconds_per_step if by == "step" else found.rate
        write = numbers.seconds if by == "step" else numbers.published
        return write(low) if low == high else f"{write(low)}–{write(high)}"

    return cell


def _gigabytes(source: str) -> Callable[[TableRow], str]:
    return lambda row: numbers.figure(row.published[source].gigabytes if source in row.published else None)
