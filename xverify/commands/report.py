from __future__ import annotations

import argparse
import sys

from ..errors import shown
from ..report.options import Page, Tables
from ..report.outputs import of_results
from ..workload.declaration import declared
from ..workload.options import named
from . import _outputs as outputs
from ._arguments import Parser, add
from ._results import LAST, named_files, sources

HELP = "make reports from result files: HTML, Markdown, JUnit XML, CSV"
GROUP = "results"
EXAMPLE = """examples:
  xverify report --html page.html
      the last result as a page
  xverify report result.json
      print the report again; --details prints every sentence
  xverify report result.json --html report.html
  xverify report a.json b.json --html matrix.html --junit results.xml
      one page with all models and subjects
  xverify report result.json --format markdown"""
OPTIONS = (*declared(Page), *declared(Tables), named("force"), named("details"))


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "files",
        metavar="RESULT.json",
        nargs="*",
        help="result files of xverify run or check (default: the last result)",
    )
    add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Make the reports, and return the exit code of the worst result."""
    from ..report import content, terminal

    outputs.check(args, OPTIONS, named_files("RESULT.json", args.files), force=args.force)
    found = sources(args.files)
    results = [each.result for each in found]

    written = [str(path) for name in outputs.FILES if (path := getattr(args, name)) is not None]

    def show() -> None:
        if written:
            return
        out = terminal.console()
        for name, _, result in found:
            file = None if content.of_files(result) or name == LAST else name
            terminal.render(result, out, file=file, details=args.details)

    outputs.deliver(args, of_results(results), show, summary=False)
    if written:  # on standard error, because a file may be /dev/stdout
        told = content.tally(results[0]) if len(results) == 1 else f"{len(results)} results"
        print(shown(f"{content.conclusion(*results)}: {told}; wrote {', '.join(written)}"), file=sys.stderr)
    return content.worst(results).exit_code
