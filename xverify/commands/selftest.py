from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from ..report.tables import headed
from ..report.terminal import console
from ..report.text import escape
from ..results.file import write_json
from ..workload.declaration import Option
from ..workload.options import HOW, WHAT, named
from . import _outputs as outputs
from ._arguments import Parser, add

HELP = "test the timing of xverify itself on this machine"
GROUP = "this installation"
EXAMPLE = """examples:
  xverify selftest timing                 the whole table, about half an hour
  xverify selftest timing --busy          the same beside a busy process
  xverify selftest timing --runs 100      more pairs of equal subjects
  xverify selftest timing --only cheats,slower"""
EXIT_CODES = {
    0: "every check passed",
    1: "a check failed",
    2: "a wrong command line",
    4: "no check failed, but at least one is undecided because of noise",
}
KINDS = (
    "cheats",
    "slower",
    "bounds",
    "equals",
    "overhead",
    "script",
)  # those of selftest.timing, which is imported only when it runs
OPTIONS = (
    Option("runs", int, 20, "runs of each pair of equal subjects", group=HOW, metavar="N", least=1),
    Option(
        "only", str | None, None, f"some of: {', '.join(KINDS)}", group=WHAT, metavar="LIST", choices=KINDS, many=True
    ),
    Option("busy", bool, False, "keep one core busy during the tests; an undecided check is then allowed", group=HOW),
    named("json", help="write the table to a file"),
    named("force"),
    named("quiet", help="print only the table, and no progress"),
)


def add_arguments(parser: Parser) -> None:
    parser.group(WHAT).add_argument("what", choices=["timing"], metavar="WHAT", help="what to test: timing")
    add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Print the table, and return a code of EXIT_CODES. With --busy, an undecided check gives 0."""
    from ..selftest import timing  # imported here, because the help does not need the engine

    outputs.check(args, OPTIONS, force=args.force)
    only = [part.strip() for part in args.only.split(",")] if args.only else []

    def say(text: str) -> None:
        if not args.quiet:
            print(text, file=sys.stderr, flush=True)

    with timing.planted(), timing.busy(args.busy):
        checks = list(timing.checks(args.runs, only, say))
    out = console()
    title = "tests of timing" + (", beside a busy process" if args.busy else "")
    table = headed(title)
    for name in ("check", "found", "accepted", ""):
        table.add_column(name)
    for check in checks:
        word = {True: "[green]pass[/]", False: "[bold red]FAIL[/]", None: "[yellow]undecided[/]"}[check.passed]
        table.add_row(escape(check.name), escape(check.found), escape(check.accepted), word)
    out.print(table)
    failed = [check for check in checks if check.passed is False]
    open_questions = [check for check in checks if check.passed is None]
    out.print(
        f"{len(checks) - len(failed) - len(open_questions)} passed, {len(failed)} failed, {len(open_questions)} undecided"
    )
    if args.json:
        write_json([asdict(check) for check in checks], args.json)
    return 1 if failed else 4 if open_questions and not args.busy else 0
