from __future__ import annotations

import argparse

from rich.console import Console

from ..errors import UsageError, nearest
from ..report import content, layers
from ..report.notes import few
from ..report.terminal import console
from ..report.text import escape
from ..results.records import Result
from ._results import source

HELP = "show the layers of a result: which differs first, by how much, and what it computes"
GROUP = "results"
EXAMPLE = """examples:
  xverify run mlp; xverify explain     the last result
  xverify run mlp --json result.json; xverify explain result.json
  xverify explain result.json --subject jittor --faults"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="RESULT.json", nargs="?", help="a result file of xverify run (default: the last result)"
    )
    parser.add_argument("--subject", metavar="NAME", help="show only this subject (default: all)")
    parser.add_argument("--faults", action="store_true", help="leave out the layers that are EQUAL")


def main(args: argparse.Namespace) -> int:
    """Print the layers of every subject, and return the exit code of the run."""
    name, _, result = source(args.file)
    names = list(dict.fromkeys(row.subject for row in result.rows))
    if args.subject is not None and args.subject not in names:
        raise UsageError(
            f"{name} has no subject {args.subject!r}{nearest(args.subject, names)} It has: {', '.join(names)}"
        )
    out = console()
    for part in result.by_task():
        _explain(part, len(result.tasks) > 1, args.subject, args.faults, out)
    return result.exit_code


def _explain(result: Result, of_several: bool, subject: str | None, faults: bool, out: Console) -> None:
    """Print the layers of one task. of_several: whether to name the task. subject: the only one to show; None shows all."""
    reference = result.reference
    task = f", {result.tasks[0]}" if of_several else ""
    out.print(
        f"[bold]{escape(result.model + task)}[/]: {content.conclusion(result)}; noise floor: {escape(reference.floor)}"
    )
    rows = [row for row in result.rows if subject in (None, row.subject)]
    for row in rows:
        layers.render(row, out, faults)
    layers.legend(rows, out)
    untested = reference.untested
    if untested:
        out.print()
        out.print(
            f"{len(untested)} of {len(untested) + reference.tested} weights and constants UNTESTED: a fault in them would not "
            f"show on these inputs: {few(untested, 8)}",
            markup=False,
        )
