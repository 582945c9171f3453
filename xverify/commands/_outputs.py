"""What commands with a report have in common: the files that it is written to, and the format in which it is printed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path

from .. import outputs, reading, writing
from ..errors import NotWritten, UsageError
from ..outputs import Output, Read
from ..report.outputs import Makers
from ..workload.declaration import Option
from . import _arguments

SUMMARY = "GITHUB_STEP_SUMMARY"  # an environment variable: the Markdown file that GitHub shows with a workflow run
FILES = ("html", "markdown", "junit", "csv")  # the options that name a file of the report


def check(
    args: argparse.Namespace,
    options: Sequence[Option],
    read: Iterable[Read] = (),
    others: Sequence[Output] = (),
    summary: bool = False,
    force: bool | None = None,
) -> None:
    """Raise UsageError for a wrong value, a file that cannot be written, or an output that would destroy something.

    read: what the command reads beside the files that its options name. others: what it writes beside those.
    summary: whether it adds to the summary of a workflow on GitHub. force: as of ``outputs.check``.
    """
    values = _arguments.values(args, options)
    if hasattr(args, "markdown"):
        _check_summary(args)
    # What is resumed is read, and refused if it is no result.
    resumed = ("json",) if getattr(args, "resume", False) else ()
    made = [
        Output(option.flag, Path(values[option.name]), "" if option.name in resumed else _kind(option))
        for option in options
        if option.path in ("written", "new folder") and values[option.name] is not None
    ]
    path = os.environ.get(SUMMARY) if summary and args.markdown is None else None
    made += [Output(SUMMARY, Path(path))] if path else []  # which is added to
    from ..framework import reads  # late: the help needs no numpy

    outputs.check([*made, *others], chain(read, reads.of_options(options, values)), force)


def _kind(option: Option) -> str:
    return option.name if option.name in outputs.KINDS else ""


def deliver(
    args: argparse.Namespace,
    makers: Makers,
    render: Callable[[], None],
    problem: NotWritten | None = None,
    summary: bool = True,
) -> None:
    """Print the report, in the format of --format where it is given, and write every file that the user named.

    render: prints the report as tables. summary: whether the Markdown goes into the summary of a workflow on GitHub, too.
    problem: an earlier error about a file. Raises the error about the first file that cannot be written, when all is done.
    """
    problem = delivered(args, makers, render, summary) or problem
    if problem:
        raise problem


def delivered(
    args: argparse.Namespace, makers: Makers, render: Callable[[], None], summary: bool = True
) -> NotWritten | None:
    """Do what ``deliver`` does, and return the error about the first file that cannot be written."""
    if args.format is None:
        render()
    else:
        print(makers[args.format](), end="")
    if summary:
        _summarize(args, makers)
    problems = []
    for name in FILES:
        path = getattr(args, name, None)
        if path is not None:
            try:
                outputs.write(name, makers[name](), path)
            except NotWritten as error:
                problems.append(error)
    return problems[0] if problems else None


def _check_summary(args: argparse.Namespace) -> None:
    """Raise UsageError where the summary of a workflow is no file, nor an output of this process, and could be waited for."""
    path = os.environ.get(SUMMARY)
    if path and getattr(args, "markdown", None) is None and os.path.exists(path) and not writing.OWN.fullmatch(path):
        wrong = reading.problem(path)
        if wrong:
            raise UsageError(f"{SUMMARY} is {path}: {wrong}; name a file with it, or unset it")


def _summarize(args: argparse.Namespace, makers: Makers) -> None:
    """Append the Markdown to the summary of a workflow on GitHub, unless the user named a file for it."""
    path = os.environ.get(SUMMARY)
    if not path or args.markdown is not None:
        return
    try:
        writing.append_text(makers["markdown"]() + "\n", path)
    except NotWritten as error:
        print(f"xverify: {SUMMARY}: {error}", file=sys.stderr)
