"""Prints a history, and the answer of a query."""

from __future__ import annotations

from rich.console import Console

from ..report.style import STYLES
from ..report.tables import headed
from ..report.text import LONGEST_CELL, escape, one_line, within
from . import words
from .query import Answer
from .records import BETTER, CHANGED, IMPROVED, REGRESSED, SAME, WORSE, Change, History, Series
from .text import shown

MOST_SERIES = 20  # of one heading
MOST_CHANGES = 3  # of one series
MOST_ROWS = 1000  # of a table
COLOURS = {WORSE: "red", BETTER: "green"}


def render(history: History, out: Console, everything: bool = False, quiet: bool = False) -> None:
    """Print the regressions, the improvements, the other changes, and the conclusion.

    everything: also the series without a change, and all of many.
    quiet: print the last line alone.
    """
    if not quiet:
        machines = {words.machine(each.key) for each in history.series}
        several = len(machines) > 1
        if len(machines) == 1:
            out.print(f"All results are of one machine: {escape(''.join(machines))}")
        for standing in (REGRESSED, IMPROVED, CHANGED, *([SAME] if everything else [])):
            _section(standing, history.of(standing), out, everything, several)
        same = len(history.of(SAME))
        if same and not everything:
            out.print(f"{same:,} series without a change" if same != len(history.series) else "No series has changed")
    outcome = words.outcome(history)
    out.print(f"[{STYLES[outcome]}]{words.word(history)}[/] {escape(words.conclusion(history))}")


def _section(standing: str, series: tuple[Series, ...], out: Console, everything: bool, with_machine: bool) -> None:
    if not series:
        return
    out.print(f"[bold]{words.HEADINGS[standing]}[/]")
    listed = series if everything else series[:MOST_SERIES]
    for each in listed:
        out.print(f"{escape(words.name(each))} [dim]({escape(words.facts(each.key, with_machine))})[/]")
        out.print(f"  {each.count} results, {words.moment(each.last)} the newest: {escape(each.outcome)}")
        for change in each.changes if everything else each.changes[:MOST_CHANGES]:
            _change(change, out)
        more = 0 if everything else len(each.changes) - MOST_CHANGES
        if more > 0:
            out.print(f"  and {more} earlier changes: --all prints them")
    if len(listed) < len(series):
        out.print(f"and {len(series) - len(listed):,} more series: --all prints them")
    out.print()


def _change(change: Change, out: Console) -> None:
    colour = COLOURS.get(change.effect, "default")
    place = f"{words.when(change)}, {one_line(change.path, words.LONGEST_NAME)}"
    out.print(f"  [{colour}]{escape(words.what(change))}[/] [dim]({escape(place)})[/]")
    for remark in words.remarks(change):
        out.print(f"    {escape(remark)}")


def answer(answer: Answer, out: Console) -> None:
    """Print the answer of a query as a table."""
    table = headed()
    for title in answer.columns:
        table.add_column(escape(one_line(title, LONGEST_CELL)))
    for row in answer.rows[:MOST_ROWS]:
        first, *others = (one_line(str(shown(value)), LONGEST_CELL) for value in row)
        table.add_row(escape(first), *map(within, others))
    out.print(table)
    more = len(answer.rows) - MOST_ROWS
    count = f"{len(answer.rows):,} row{'' if len(answer.rows) == 1 else 's'}"
    out.print(f"{count}, of which {MOST_ROWS:,} are printed: --format csv prints all" if more > 0 else count)
