"""What commands with a result share: a file that cannot be written takes nothing from the report, and the last result is kept."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import NotWritten, UsageError, shown
from ..outputs import Read
from ..results.records import Result, Row
from ..results.verdicts import Outcome, Verdict

if TYPE_CHECKING:
    from rich.console import Console

LAST, BEFORE = "the last result", "the result before it"  # what results are called that the user did not name


class Measured(NamedTuple):
    """A new result. problem: the error about its file, to be raised when the report has been printed. kept: as the last result."""

    result: Result
    problem: NotWritten | None
    kept: bool


class Source(NamedTuple):
    """A result that a command reads. name: how it is called in a report."""

    name: str
    path: Path
    result: Result


def measured(measure: Callable[[], Result]) -> Measured:
    """Measure a result, and keep it as the last one."""
    from . import _last as last  # late, here and below: the help reads no result

    problem = None
    try:
        result = measure()
    except NotWritten as error:
        if not isinstance(error.result, Result):
            raise
        result, problem = error.result, error
    return Measured(result, problem, last.keep(result))


def source(name: str | None) -> Source:
    """The result in a file, or the last one where the user names none, which is said on standard error. Raises UsageError."""
    from ..results.file import read
    from . import _last as last

    if name is not None:
        return Source(name, Path(name), read(Path(name)))
    return _told(LAST, *last.newest())


def sources(names: Sequence[str]) -> list[Source]:
    """The results in these files, or the last one where the user names none. Raises UsageError."""
    return [source(name) for name in names] or [source(None)]


def source_before(later: Source) -> Source:
    """The newest result of the same model before this last one, which is said on standard error. Raises UsageError."""
    from . import _last as last

    found = last.before(later.path, later.result)
    if found is None:
        raise UsageError(
            f"{later.name} is the only one of {later.result.model} that is kept: run it again after a change, or name two "
            "result files"
        )
    return _told(BEFORE, *found)


def named_files(label: str, names: Iterable[str | None]) -> list[Read]:
    """What a command reads, of what the user named. label: how it is called in the usage."""
    return [Read(label, Path(name)) for name in names if name is not None]


def tell_next(found: Measured, args: argparse.Namespace, out: Console) -> None:
    """After a FAIL, print the commands that go on with the last result, where a person reads the report."""
    printed = getattr(args, "quiet", False) or getattr(args, "format", None)
    if found.result.verdict != Outcome.FAIL or not found.kept or printed or not out.is_terminal:
        return
    from ..report.conditions import command
    from ..report.text import escape

    commands = {
        "xverify explain --faults": "what is wrong, layer by layer",
        "xverify report --html page.html": "the result as a page",
    }
    if _has_reproducer(found.result):
        commands[f"{command(found.result)} --reproducer DIR"] = "the piece that fails by itself, to hand in"
    if _compares(found.result):
        commands["xverify diff --errors-only"] = "what changed since the result before it"
    width = max(map(len, commands))
    for typed, says in commands.items():
        out.print(f"  {escape(typed):{width}}  [dim]{says}[/]")


def _has_reproducer(result: Result) -> bool:
    """Whether a runtime computes a file wrong of which a reproducer can be written, and was not asked for."""
    asked = result.settings.asked
    return asked.command == "check" and "reproducer" not in asked.options and any(map(_is_wrong, result.rows))


def _is_wrong(row: Row) -> bool:
    return row.task == "runtime" and row.error is not None and row.error.verdict == Verdict.DIFFERENT


def _compares(result: Result) -> bool:
    """Whether an earlier result is kept that xverify diff compares with this last one."""
    from . import _last as last
    from .diff import differences

    earlier = last.before(last.newest()[0], result)
    return earlier is not None and not differences(earlier[1], result, timed=False)


def _told(name: str, path: Path, result: Result) -> Source:
    from ..report import content

    print(f"{name}: {shown(content.label(result))}, of {shown(result.created)}", file=sys.stderr)
    return Source(name, path, result)
