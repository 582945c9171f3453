"""What a sweep prints: a line for each cell on standard error while it works, and the matrix at the end."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

from ..errors import shown
from ..progress import Listener
from ..report import content, numbers
from ..report.matrix import Matrix
from ..report.progress import progress_listener
from ..report.style import Reason, coloured
from ..report.text import escape
from ..results.records import Result
from .planning import Planned
from .run import Swept, Watcher

MOST_REASONS = 20


class TerminalWatcher(Watcher):
    """Prints a line when a cell begins and ends. In a terminal, the live table of its run stands below while it runs."""

    def known(self, done: int, left: int) -> None:
        have = f"{done} of {done + left} cells have a result; " if done else ""
        _tell(f"{have}{left or 'no'} {'cell' if left == 1 else 'cells'} to run")

    def unusable(self, planned: Planned, problem: str) -> None:
        _tell(f"{planned.name} is run again: {problem}")

    @contextmanager
    def running(self, planned: Planned, place: str, seconds_left: float | None) -> Iterator[Listener]:
        self.sent(planned, place, seconds_left)
        with progress_listener(not sys.stderr.isatty()) as listener:
            yield listener

    def sent(self, planned: Planned, place: str, seconds_left: float | None) -> None:
        left = f" (about {numbers.duration(seconds_left)} left)" if seconds_left is not None else ""
        _tell(f"cell {place}{left}: {planned.name}")

    def ran(self, planned: Planned, result: Result, seconds: float, machine: str = "") -> None:
        where = f"{planned.name} on {machine}: " if machine else ""
        _tell(f"  {where}{content.conclusion(result)}: {content.tally(result)} ({numbers.duration(seconds)})")


def _tell(text: str) -> None:
    sys.stderr.write(shown(text) + "\n")
    sys.stderr.flush()


def print_matrix(
    cells: Sequence[tuple[Planned, Result]], missing: int, done: Swept, folder: str, console: Console, quiet: bool
) -> None:
    """Print the matrix, why rows are not EQUAL, and the conclusion. missing: number of cells without a result."""
    results = [result for _, result in cells]
    if not quiet:
        console.print(Matrix([planned.name for planned, _ in cells], results))
        reasons = [(planned.name, each) for planned, result in cells for each in _failures(result)]
        for name, each in reasons[:MOST_REASONS]:
            console.print(f"{escape(name)}, [bold]{escape(each.subject)}[/]: {escape(each.text)}")
        if len(reasons) > MOST_REASONS:
            console.print(f"and {len(reasons) - MOST_REASONS} more reasons: xverify report {escape(folder)}/*.json")
    console.print(_conclusion(results, missing, done, folder))


def _failures(result: Result) -> Iterator[Reason]:
    """The reasons of the rows that failed."""
    failed = {row.subject for row in result.rows if row.status != "ok" or (row.error and row.error.verdict.fails)}
    yield from (each for each in content.reasons(result) if each.subject in failed)


def _conclusion(results: Sequence[Result], missing: int, done: Swept, folder: str) -> str:
    """The last line, in rich's markup."""
    counts = Counter(str(result.verdict) for result in results)
    said = [f"{count} {name}" for name, count in counts.items()]
    if missing:
        said.append(f"{missing} without a result")
    total = len(results) + missing
    ran = f"{done.ran} run now" if done.ran else "nothing was run: every result was there"
    cells = f"{total} {'cell' if total == 1 else 'cells'}"
    line = f"{coloured(content.conclusion(*results))} {cells}: {', '.join(said)} ({ran}; results in {escape(folder)})"
    return f"{line}\n{escape(done.stopped)}" if done.stopped else line
