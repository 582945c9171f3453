from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.markup import escape

from ..errors import UsageError, nearest
from ..report.tables import headed
from ..report.terminal import console
from ..selftest import timing

HELP = "put xverify's own timing to the test on this machine: equals, planted slowdowns, cheats, overhead"
EXAMPLE = """examples:
  xverify selftest timing                      the whole table, some 20 minutes
  xverify selftest timing --busy               again, while another process keeps a core busy
  xverify selftest timing --runs 100           as many pairs of equals as the acceptance names
  xverify selftest timing --only cheats,slower

exit codes here: 0 all passed, 1 one did not, 4 none failed, but noise kept one from being decided"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["timing"], help="what to test")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="runs of a pair of equals (default: 20)")
    parser.add_argument("--only", metavar="LIST", help=f"some of: {', '.join(timing.KINDS)}")
    parser.add_argument(
        "--busy", action="store_true", help="keep a core busy meanwhile; refusals are counted, and allowed"
    )
    parser.add_argument("--json", metavar="FILE", help="write the table")
    parser.add_argument("--quiet", action="store_true", help="print the table alone, and no progress")


def main(args: argparse.Namespace) -> int:
    only = [part.strip() for part in args.only.split(",")] if args.only else []
    for kind in only:
        if kind not in timing.KINDS:
            raise UsageError(f"--only {kind}{nearest(kind, timing.KINDS)} Known: {', '.join(timing.KINDS)}")
    if args.runs < 1:
        raise UsageError(f"--runs is {args.runs}: it must be at least 1")

    def say(text: str) -> None:
        if not args.quiet:
            print(text, file=sys.stderr, flush=True)

    with timing.planted(), timing.busy(args.busy):
        found = list(timing.checks(args.runs, only, say))
    out = console()
    title = "timing, put to the test" + (", beside a busy process" if args.busy else "")
    table = headed(title)
    for name in ("check", "found", "accepted", ""):
        table.add_column(name)
    for check in found:
        word = {True: "[green]pass[/]", False: "[bold red]FAIL[/]", None: "[yellow]undecided[/]"}[check.passed]
        table.add_row(escape(check.name), escape(check.found), escape(check.accepted), word)
    out.print(table)
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(check) for check in found], indent=1) + "\n")
    failed = [check for check in found if check.passed is False]
    open_questions = [check for check in found if check.passed is None]
    out.print(
        f"{len(found) - len(failed) - len(open_questions)} passed, {len(failed)} failed, {len(open_questions)} undecided"
    )
    return 1 if failed else 4 if open_questions and not args.busy else 0
