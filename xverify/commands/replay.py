from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..report.text import escape
from ..results.verdicts import Outcome
from ..workload.options import named
from . import _arguments
from ._arguments import Parser
from ._results import measured

if TYPE_CHECKING:
    from rich.table import Table

    from ..receipts.comparing import Comparison
    from ..results.records import Result

HELP = "run again from a receipt, and say whether all verdicts agree"
GROUP = "results"
EXAMPLE = """examples:
  xverify run mlp --receipt receipts/mlp
      keep all that the run is made from
  xverify replay receipts/mlp
      run it again, here or on another machine, and compare the verdicts
  xverify replay receipts/mlp --no-timing --json again.json
  xverify diff receipts/mlp/result.json again.json --errors-only"""
EXIT_CODES = {
    0: "every verdict agrees",
    1: "a verdict differs",
    2: "a wrong command line, or an unusable receipt",
    3: "no verdict is known to differ, and a row no longer runs",
    4: "there is no verdict to compare",
}
OPTIONS = (
    named("no_timing", group="options", help="compare the verdicts alone, also of a run that was timed"),
    named("python", group="options"),
    named("json", group="options", help="write the result file of the new run"),
    named("force", group="options"),
)
WORDS = {Outcome.PASS: "AGREES", Outcome.FAIL: "DIFFERS", Outcome.ERROR: "NO LONGER RUNS"}
MOST = 20  # verdicts that differ and are printed


def add_arguments(parser: Parser) -> None:
    parser.add_argument("receipt", metavar="DIR", help="a folder that xverify run MODEL --receipt DIR wrote")
    _arguments.add(parser, OPTIONS)
    parser.add_argument(
        "--anyway", action="store_true", help="also run a receipt in which files have changed; they are listed"
    )
    parser.add_argument("--quiet", action="store_true", help="print the last line alone, and no progress")


def main(args: argparse.Namespace) -> int:
    """Run the receipt again, print what differs, and return a code of EXIT_CODES."""
    from ..engine.receipts import compared, run_again
    from ..receipts.reading import read
    from ..report.progress import progress_listener

    asked = _arguments.values(args, OPTIONS)
    kept = read(Path(args.receipt))
    with progress_listener(args.quiet) as listener:
        result, problem, _ = measured(lambda: run_again(kept, listener=listener, anyway=args.anyway, **asked))
    found = compared(kept, result)
    _print(kept.result, result, found, args)
    if problem is not None:
        raise problem
    return found.outcome.exit_code


def _print(old: Result, new: Result, comparison: Comparison, args: argparse.Namespace) -> None:
    """Print the table of rows, every verdict and condition that differs, and the conclusion."""
    from ..report.style import STYLES
    from ..report.terminal import console

    out = console()
    if not args.quiet:
        out.print(_table(old, new, comparison))
        for each in comparison.differing[:MOST]:
            out.print(f"  [red]{escape(str(each))}[/]")
        if len(comparison.differing) > MOST:
            out.print(f"  and {len(comparison.differing) - MOST} more verdicts that differ")
        for sentence in comparison.differences:
            out.print(f"[dim]Differs: {escape(sentence)}[/]")
        if not comparison.differences:
            out.print("[dim]Settings, versions, machine, weights and inputs are those of the receipt[/]")
    word = WORDS.get(comparison.outcome, str(comparison.outcome))
    text = f"{escape(old.model)}: {comparison.counts()} as in {escape(args.receipt)}"
    out.print(f"[{STYLES[comparison.outcome]}]{word}[/] {text}")


def _table(old: Result, new: Result, comparison: Comparison) -> Table:
    """One line for each row: both verdicts and both relative errors."""
    from ..report import numbers
    from ..report.style import coloured
    from ..report.tables import headed

    errors = [
        {f"{row.subject}, {row.task}": row.error.rel_rms for row in result.rows if row.error is not None}
        for result in (old, new)
    ]
    made = headed(f"{old.model}: the receipt of {old.created}, and now")
    for title in ("row", "receipt", "now", "relative error then", "now"):
        made.add_column(title, justify="left" if title in ("row", "receipt") else "right", no_wrap=True)
    for each in (finding for finding in comparison.findings if finding.kind == "row"):
        cells = (numbers.error(of.get(each.row)) for of in errors)
        made.add_row(escape(each.row), coloured(each.old), coloured(each.new), *cells)
    return made
