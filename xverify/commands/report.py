from __future__ import annotations

import argparse
import sys
import tempfile
import webbrowser
from pathlib import Path

from .. import writing
from ..errors import UsageError, shown
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
  xverify report result.json --open
      show the page in a browser
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
    parser.add_argument(
        "--open", action="store_true", help="show the page in a browser; without --html, in a temporary file"
    )


def main(args: argparse.Namespace) -> int:
    """Make the reports, and return the exit code of the worst result."""
    from ..report import content, terminal

    if args.open:
        _check_browser()
    outputs.check(args, OPTIONS, named_files("RESULT.json", args.files), force=args.force)
    found = sources(args.files)
    results = [each.result for each in found]
    if args.open and args.html is None:
        args.html = str(Path(tempfile.mkdtemp(prefix="xverify-"), "report.html"))

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
        writing.WRITTEN.clear()  # they are told
    if args.open and not webbrowser.open(Path(args.html).absolute().as_uri()):
        print(f"xverify report: the browser did not open {args.html}: open it yourself", file=sys.stderr)
    return content.worst(results).exit_code


def _check_browser() -> None:
    """Raise UsageError where there is no browser."""
    try:
        webbrowser.get()
    except webbrowser.Error:
        raise UsageError(
            "--open: there is no browser on this machine: name one in the variable BROWSER, or write --html FILE and open the "
            "file on another machine"
        ) from None
