from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UsageError, nearest
from ..report import layers
from ..report.terminal import console
from ..results.file import read

HELP = "show the layers of a result: which differs first, by how much, and what it computes"
GROUP = "results"
EXAMPLE = """examples:
  xverify run mlp --json result.json; xverify explain result.json
  xverify explain result.json --subject jittor --faults"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="RESULT.json", help="a result file of xverify run")
    parser.add_argument("--subject", metavar="NAME", help="show only this subject (default: all)")
    parser.add_argument("--faults", action="store_true", help="leave out the layers that are EQUAL")


def main(args: argparse.Namespace) -> int:
    """Print the layers of every subject, and return the exit code of the run."""
    result = read(Path(args.file))
    rows = result.rows
    if args.subject is not None:
        names = [row.subject for row in rows]
        if args.subject not in names:
            raise UsageError(
                f"{args.file} has no subject {args.subject!r}{nearest(args.subject, names)} It has: {', '.join(names)}"
            )
        rows = tuple(row for row in rows if row.subject == args.subject)
    out = console()
    reference = result.reference
    out.print(f"[bold]{result.model}[/]: {result.verdict}; noise floor: {reference.floor}")
    for row in rows:
        layers.render(row, out, args.faults)
    untested = reference.untested
    if untested:
        out.print(
            f"\n{len(untested)} of {len(untested) + reference.tested} weights and constants UNTESTED: a fault in them would not "
            f"show on these inputs: {', '.join(untested[:8])}{', …' if len(untested) > 8 else ''}"
        )
    return result.exit_code
