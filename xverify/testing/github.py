"""What a workflow on GitHub shows of a test run: a summary in Markdown, and an annotation at the line of each test that fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..errors import XverifyError, shown
from .plugin import RUNS

if TYPE_CHECKING:
    from ..results.records import Result

ROOT = "GITHUB_WORKSPACE"  # an environment variable: the folder of the repository
OURS = "xverify.errors."  # the beginning of pytest's message about an error of xverify
# What ends a value in a command of a workflow -> how it is written there. The first two are escaped everywhere.
ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"}


def summarize(results: Sequence[Result], make: Callable[[], str]) -> str:
    """Add the report to the summary of a workflow. Returns why it could not be added, or "".

    make: makes the report in Markdown.
    """
    from .. import outputs, writing

    folders = [outputs.Read("the model", Path(result.settings.model)) for result in results]
    try:
        path = outputs.summary()
        if path is not None and results:
            outputs.check([outputs.Output(outputs.SUMMARY, path)], folders, force=None)
            writing.append_text(make() + "\n", path)
    except XverifyError as error:
        return str(error)
    return ""


def annotation(report: pytest.TestReport, has_results: bool, root: Path) -> str:
    """The command that shows a failed test at its line; "" for one that did not fail, and for one that is not about xverify.

    has_results: whether the test ran a model. root: the folder to which the names of tests are relative.
    """
    crash = getattr(report.longrepr, "reprcrash", None)
    if os.environ.get(RUNS) != "true" or not report.failed or crash is None:
        return ""
    if not has_results and not crash.message.startswith(OURS):
        return ""
    file, line = Path(crash.path), crash.lineno
    if not file.is_file():
        file, line = root / report.location[0], (report.location[1] or 0) + 1
    place = Path(os.environ.get(ROOT) or root).resolve()
    file = file.resolve()
    name = file.relative_to(place) if file.is_relative_to(place) else file
    said = "\n".join(map(shown, crash.message.removeprefix("AssertionError: ").splitlines()))
    values = {"file": name.as_posix(), "line": str(line), "title": shown(report.nodeid)}
    return _command(values, said)


def _command(values: Mapping[str, str], text: str) -> str:
    """``::error`` with these properties and this text, in which nothing begins another command."""
    properties = ",".join(f"{name}={_escaped(value, ''.join(ESCAPES))}" for name, value in values.items())
    return f"::error {properties}::{_escaped(text, '%' + chr(13) + chr(10))}"


def _escaped(text: str, letters: str) -> str:
    return "".join(ESCAPES[each] if each in letters else each for each in text)
