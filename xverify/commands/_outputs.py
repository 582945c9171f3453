"""What commands with a report have in common: the files that it is written to, and the format in which it is printed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path

from .. import outputs, writing
from ..errors import NotWritten
from ..outputs import SUMMARY, Output, Read
from ..report.outputs import Makers
from ..workload.declaration import Option
from . import _arguments

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
    path = outputs.summary() if hasattr(args, "markdown") and args.markdown is None else None
    # What is resumed is read, and refused if it is no result.
    resumed = ("json",) if getattr(args, "resume", False) else ()
    made = [
        Output(option.flag, Path(values[option.name]), "" if option.name in resumed else _kind(option))
        for option in options
        if option.path in ("written", "new folder", "replaced folder") and values[option.name] is not None
    ]
    made += [Output(SUMMARY, path)] if summary and path else []  # which is added to
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


def _summarize(args: argparse.Namespace, makers: Makers) -> None:
    """Append the Markdown to the summary of a workflow on GitHub, unless the user named a file for it."""
    path = os.environ.get(SUMMARY)
    if not path or args.markdown is not None:
        return
    try:
        writing.append_text(makers["markdown"]() + "\n", path)
    except NotWritten as error:
        print(f"xverify: {SUMMARY}: {error}", file=sys.stderr)
