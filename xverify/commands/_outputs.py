"""What commands with a report have in common: the files that it is written to, and the format in which it is printed."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from .. import writing
from ..errors import NotWritten, UsageError
from ..results.records import Result
from ..workload.declaration import Option
from . import _arguments

Makers = Mapping[str, Callable[[], str]]  # name of an output -> makes its text
SUMMARY = "GITHUB_STEP_SUMMARY"  # an environment variable: the Markdown file that GitHub shows with a workflow run


def check(args: argparse.Namespace, options: Sequence[Option]) -> None:
    """Raise UsageError for a wrong value, a file that cannot be written, or one file for two outputs."""
    _arguments.values(args, options)
    flags: dict[str, str] = {}
    for option in options:
        path = getattr(args, option.name) if option.path == "written" else None
        if path is not None and writing.is_replaced(path):
            place = os.path.realpath(path)
            if place in flags:
                raise UsageError(f"{flags[place]} and {option.flag} name the same file, {path}: name another one")
            flags[place] = option.flag


def of_results(results: Sequence[Result]) -> Makers:
    """The outputs of results."""
    from ..report import csv, junit, markdown

    return {
        "html": lambda: _page(results),
        "markdown": lambda: markdown.report(results),
        "junit": lambda: junit.report(results),
        "csv": lambda: csv.report(results),
        "json": lambda: _json(results),
    }


def printed(args: argparse.Namespace, makers: Makers) -> bool:
    """Print the output of --format. Returns False when there is none."""
    if args.format is None:
        return False
    print(makers[args.format](), end="")
    return True


def written(args: argparse.Namespace, makers: Makers) -> NotWritten | None:
    """Write every file that the user named. Returns the error about the first that cannot be written."""
    problems = []
    for name in ("html", "markdown", "junit", "csv"):
        path = getattr(args, name, None)
        if path is not None:
            try:
                writing.write_text(makers[name](), path)
            except NotWritten as error:
                problems.append(error)
    return problems[0] if problems else None


def summarize(args: argparse.Namespace, makers: Makers) -> None:
    """Append the Markdown to the summary of a workflow on GitHub, unless the user named a file for it."""
    path = os.environ.get(SUMMARY)
    if not path or args.markdown is not None:
        return
    try:
        writing.append_text(makers["markdown"]() + "\n", path)
    except NotWritten as error:
        print(f"xverify: {SUMMARY}: {error}", file=sys.stderr)


def _page(results: Sequence[Result]) -> str:
    from ..report import html

    return html.page(results)


def _json(results: Sequence[Result]) -> str:
    """One result as a result file has it, or a list of several."""
    values = [result.to_dict() for result in results]
    return json.dumps(values[0] if len(values) == 1 else values, indent=1) + "\n"
