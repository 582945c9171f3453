"""Print a reproduced experiment."""

from __future__ import annotations

from rich.console import Console

from ..report.rows import not_counted
from ..report.style import coloured
from ..report.tables import Column, FirstThatFits, narrower, table
from ..report.text import escape
from ..report.training import training_tables
from ..results.verdicts import Verdict
from .columns import columns, dispensable, rate
from .notes import closing_notes, part_notes, title
from .records import Part, Reproduction
from .table import TableRow, table_rows


def print_part(done: Reproduction, part: Part, console: Console) -> None:
    """Print the table of a part, and the sentences under it."""
    rows = table_rows(done.experiment, part, done.scale, done.of(part))
    shown = columns(done.experiment, part, rows)
    console.print(
        FirstThatFits(
            table([_marked(column, part) for column in kept], rows, title(part, done.scale))
            for kept in narrower(shown, dispensable(shown))
        )
    )
    first = next((run.result for run in done.of(part) if run.result is not None), None)
    trained = [row for row in first.rows if row.training is not None] if first else []
    for renderable in training_tables(trained):
        console.print(renderable)
    explained = [row.subject for row in trained if row.status == "ok" and row.error is not None and row.error.reason]
    for text in part_notes(done, part, rows, explained):
        console.print(f"[dim]{escape(text)}[/]")
    console.print()


def print_closing(done: Reproduction, console: Console, quiet: bool, file: str | None) -> None:
    """Print the sentences at the end of the whole report, and the verdict as the last line.

    quiet: print the last line alone.
    file: the path of the result file.
    """
    if not quiet:
        for text in closing_notes(done):
            console.print(f"[dim]{escape(text)}[/]")
    rows = [
        row for part in done.experiment.parts for row in table_rows(done.experiment, part, done.scale, done.of(part))
    ]
    equal = sum(row.outcome in (Verdict.IDENTICAL, Verdict.EQUAL) for row in rows)
    parts = [f"{equal} of {len(rows)} rows EQUAL", file or ""]
    verdict = coloured(done.verdict)
    console.print(f"{verdict} {done.experiment.name}: {escape('; '.join(filter(None, parts)))}")


def _marked(column: Column[TableRow], part: Part) -> Column[TableRow]:
    """The column in rich's markup, with its title on two lines."""

    def cell(row: TableRow) -> str:
        text = escape(column.cell(row))
        if column.title == rate(part) and not row.counted:
            return not_counted(text, row.not_counted or "")
        return coloured(text) if column.title == "verdict" else text

    title = column.title if "\n" in column.title else column.title.replace(" ", "\n", 1)
    return Column(title, cell, column.left)
