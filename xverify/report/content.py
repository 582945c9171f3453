"""What a report of a result holds, whatever its format: columns, reasons, sentences, and the conclusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ..results.records import Result, Row
from ..results.verdicts import SEVERITY, Outcome, concluded
from . import check, detection, limits, notes, rows
from . import reasons as why
from .style import Reason
from .tables import Column, FirstThatFits


def of_files(result: Result) -> bool:
    """Whether the result is of a check of model files."""
    return result.settings.task == "check"


def label(result: Result) -> str:
    """What tells a result from others: ``resnet50, forward, batch 8``."""
    if of_files(result):
        return result.model
    batches = dict.fromkeys(f"batch {row.batch}" for row in result.rows)
    return ", ".join([result.model, *result.tasks, *batches])


def columns(result: Result) -> list[Column[Row]]:
    """All columns of the table of rows."""
    return check.shown(result) if of_files(result) else list(rows.columns(result))


def summary(result: Result) -> FirstThatFits:
    """The table of rows, with as many columns as fit into the width of the console."""
    return check.summary(result) if of_files(result) else rows.summary(result)


def reasons(result: Result, by_layer: bool = False) -> Iterator[Reason]:
    """The reasons of all rows, in order. by_layer: leave out what is told with the layers or nodes of a row."""
    found = why.of_files(result, by_layer) if of_files(result) else why.of_run(result, by_layer)
    subjects: dict[tuple[str, str], list[str]] = {}  # what several rows have in common is told once
    for each in found:
        subjects.setdefault((each.style, each.text), []).append(each.subject)
    return (Reason(style, ", ".join(dict.fromkeys(names)), text) for (style, text), names in subjects.items())


def brief(result: Result) -> Iterator[str]:
    """What the result does not show, one fact in each line, and the notes."""
    if of_files(result):
        yield from limits.of_check(result)
        yield from check.notes(result)
    else:
        yield from limits.of_run(result)
        yield from notes.notes(result)


def footer(result: Result) -> Iterator[str]:
    """What was checked, against what, and what it means."""
    if of_files(result):
        yield from check.footer(result)
    else:
        yield from detection.sentences(result)
        yield from notes.footer(result)


def tally(result: Result) -> str:
    """How many rows are EQUAL, and what the others are."""
    what = "answers" if of_files(result) else "rows" if result.settings.other_sizes else "subjects"
    return notes.tally(result.rows, what)


def worst(results: Sequence[Result]) -> Outcome:
    """The worst verdict of several results; of none, nothing is known."""
    return max((each.verdict for each in results), key=SEVERITY.index, default=Outcome.INCONCLUSIVE)


def conclusion(*results: Result) -> str:
    """The worst verdict of these results, with the number of their warnings where all of them pass: ``PASS, 1 warning``."""
    outcome = worst(results)
    return concluded(outcome, sum(each.warnings for each in results) if outcome == Outcome.PASS else 0)


def counts(results: Sequence[Result]) -> str:
    """How many results have each verdict: ``1 FAIL, 3 PASS``."""
    found = Counter(each.verdict for each in results)
    return ", ".join(f"{count} {name}" for name, count in found.items())


def verdict(row: Row) -> str:
    """The verdict of a row, or the status of a row without one."""
    if row.error is not None:
        return f"{row.error.verdict}{row.at_precision}"
    return "no verdict" if row.status == "ok" else row.ending


def verdicts(result: Result, subject: str) -> str:
    """The verdicts of a subject, one for each task."""
    return ", ".join(dict.fromkeys(verdict(row) for row in result.rows if row.subject == subject))
