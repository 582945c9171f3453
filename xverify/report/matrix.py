"""Several results as one table in a terminal: a line for each result and a column for each subject, or a line for each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from ..results.records import Result, Row
from . import content, numbers
from .style import coloured
from .tables import UNLIMITED, FirstThatFits, headed
from .text import escape

LEGEND = "time ratio: time of the subject / time of the first subject of its run"


class Matrix:
    """The table of several results. names: how each is called."""

    def __init__(self, names: Sequence[str], results: Sequence[Result]) -> None:
        self.names, self.results = names, results

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = self._by_subject()
        fits = console.measure(wide, options=options.update(width=UNLIMITED)).maximum <= options.max_width
        yield wide if fits else FirstThatFits([self._by_row(full=True), self._by_row(full=False)])
        if any(_ratio(result, row) for result in self.results for row in result.rows):
            yield Text(LEGEND, style="dim")

    def _by_subject(self) -> Table:
        made = headed()
        made.add_column("run", no_wrap=True)
        made.add_column("verdict", no_wrap=True)
        subjects = list(dict.fromkeys(row.subject for result in self.results for row in result.rows))
        for subject in subjects:
            made.add_column(escape(subject), no_wrap=True)
        for name, result in zip(self.names, self.results):
            cells = ("; ".join(_cells(result, subject)) or "-" for subject in subjects)
            made.add_row(escape(name), coloured(content.conclusion(result)), *cells)
        return made

    def _by_row(self, full: bool) -> Table:
        made = headed()
        made.add_column("run", no_wrap=full)
        made.add_column("subject", no_wrap=full)
        made.add_column("verdict", no_wrap=True)
        made.add_column("time ratio", justify="right", no_wrap=True)
        for name, result in zip(self.names, self.results):
            for index, row in enumerate(result.rows):
                shown = "" if index else escape(name)
                made.add_row(
                    shown, escape(row.subject), coloured(content.verdict(row)), _ratio(result, row) or numbers.ABSENT
                )
            if not result.rows:
                made.add_row(escape(name), "-", coloured(result.verdict), numbers.ABSENT)
        return made


def _cells(result: Result, subject: str) -> Iterator[str]:
    """The verdict and the time ratio of each row of a subject, in rich's markup."""
    for row in result.rows:
        if row.subject == subject:
            ratio = _ratio(result, row)
            yield coloured(content.verdict(row)) + (f" {ratio}" if ratio else "")


def _ratio(result: Result, row: Row) -> str:
    """The time ratio of a row; "" where it does not count, and for the baseline."""
    speed = result.compared(row)
    known = speed is not None and speed.ratio is not None and row is not result.baseline(row)
    return numbers.decimals(speed.ratio, 2) if speed is not None and known else ""
