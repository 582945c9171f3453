from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..outputs import Output, Read
from ..report.options import Page, Tables
from ..workload.declaration import Option, declared
from ..workload.options import OUTPUT, WHAT, named
from . import _outputs as outputs
from ._arguments import Parser, add

if TYPE_CHECKING:
    from ..history.tables import Connection
    from ..report.outputs import Makers

HELP = "what changed from result to result of a folder: verdicts, errors, time ratios, memory"
GROUP = "results"
EXAMPLE = """examples:
  xverify history
      every series of results in the folder results: regressions first
  xverify history resnet50 --results nightly --since 2026-11-01
  xverify history --subjects jittor,torch:compile --html history.html
      one page with a chart for each series
  xverify history --sql "SELECT model, count(*) FROM results GROUP BY model"
      a question of your own, to the tables of the index"""
EXIT_CODES = {
    0: "the newest result of no series is worse than those before it",
    1: "the newest result of a series is worse: its verdict, its time ratio, or its memory",
    2: "a wrong command line, an unusable folder, or DuckDB is not installed",
    3: "the index or a file could not be written",
    4: "there is no series with two results to compare",
}


def _date(text: str) -> datetime.datetime:
    """A day or a time in ISO 8601, as UTC without a zone."""
    try:
        date = datetime.datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else ""))
        if date.tzinfo is not None:
            date = date.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise UsageError(f"--since {text}: write a day or a time, e.g. 2026-11-01 or 2026-11-01T18:30") from None
    return date


OPTIONS = (
    Option(
        "results", str, "results", "folder of result files, with all folders in it", group=WHAT, metavar="FOLDER"
    ),
    named(
        "subjects", help="only these subjects; a framework stands for all of its modes", group=WHAT, unset="all",
    ),
    Option(
        "since", datetime.datetime | None, None, "only changes since this day or time, UTC", group=WHAT, metavar="DATE",
        parse=_date, unset="all",
    ),
    Option(
        "sql", str | None, None, "print the answer of one SELECT over the tables of the index instead", group=WHAT,
        metavar="QUERY",
    ),
    Option("all", bool, False, "also print the series without a change, and all of many", group=OUTPUT),
    *declared(Page),
    *(each for each in declared(Tables) if each.name != "junit"),
    Option(
        "index", str | None, None, "keep the index in this file", group=OUTPUT, metavar="FILE", path="written",
        unset=".xverify-history.duckdb in the folder",
    ),
    named("force"),
    named("quiet", help="print the last line alone, and no progress"),
)  # fmt: skip


def add_arguments(parser: Parser) -> None:
    parser.add_argument("models", metavar="MODEL", nargs="*", help="only the results of these models; default: all")
    add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Bring the index up to date, print what changed, and return a code of EXIT_CODES."""
    from ..history.files import scan
    from ..history.index import NAME, asked

    _check(args, Path(args.results, NAME))
    from ..report.progress import progress_listener
    from ..report.terminal import Output

    files = scan(args.results)
    question = partial(_look if args.sql is None else _ask, args)
    with progress_listener(args.quiet) as listener:
        shown, notes = asked(files, args.index, listener, question)
    problem = outputs.delivered(args, shown.makers, shown.render, summary=args.sql is None)
    closed = [f"{files.closed} folder{'s' * (files.closed > 1)} cannot be read"] if files.closed else []
    errors = Output(stderr=True)
    for note in () if args.quiet else (*shown.notes, *notes, *closed):
        errors.print(f"note: {note}", markup=False)
    if problem:
        raise problem
    return shown.code


@dataclass(frozen=True)
class Shown:
    """What the index says. render: prints it. makers: the same in every format. code: the exit code."""

    render: Callable[[], None]
    makers: Makers
    notes: tuple[str, ...]
    code: int


def _check(args: argparse.Namespace, index: Path) -> None:
    """Raise UsageError for a wrong value, and for options that do not belong together. index: where it is if none is named."""
    from ..history.files import scan

    def read() -> Iterator[Read]:
        files = scan(args.results)
        yield from (Read("--results", Path(files.place(path))) for path in files.sizes)

    beside = [Output("the index", index)] if args.index is None else []
    outputs.check(args, OPTIONS, read(), beside, summary=args.sql is None, force=args.force)
    if args.sql is None:
        return
    others = {"MODEL": args.models, "--subjects": args.subjects, "--since": args.since, "--all": args.all}
    for name, value in {**others, "--html": args.html}.items():
        if value:
            raise UsageError(f"--sql is the whole question: leave {name} out, and write it into the query")


def _look(args: argparse.Namespace, connection: Connection) -> Shown:
    """The history."""
    from ..history import page, terminal, text, words
    from ..history.query import Asked, history
    from ..report.terminal import console

    asked = Asked(tuple(args.models), tuple(args.subjects or ()), args.since)
    shown = history(connection, args.results, asked)
    drawn = page.page(shown, connection) if args.html is not None else ""
    makers = {
        "html": lambda: drawn,
        "markdown": lambda: text.as_markdown(shown, args.all),
        "csv": lambda: text.as_csv(shown, args.all),
        "json": lambda: text.as_json(shown, args.all),
    }
    return Shown(
        lambda: terminal.render(shown, console(), args.all, args.quiet), makers, tuple(words.skipped(shown)),
        words.outcome(shown).exit_code,
    )  # fmt: skip


def _ask(args: argparse.Namespace, connection: Connection) -> Shown:
    """The answer of the query of the user."""
    from ..history import terminal, text
    from ..history.query import answer
    from ..report.terminal import console

    shown = answer(connection, args.sql)
    makers = {
        "markdown": lambda: text.answer_as_markdown(shown),
        "csv": lambda: text.answer_as_csv(shown),
        "json": lambda: text.answer_as_json(shown),
    }
    return Shown(lambda: terminal.answer(shown, console()), makers, (), 0)
