"""Collects the results of a test run, also from the processes of pytest-xdist, for the files of --xverify-report and for GitHub.

In a workflow on GitHub, this module is loaded in every test run. So what needs more than pytest is imported when there is a result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import NotWritten, UsageError, shown
from . import asserting, github
from .plugin import OPTION

if TYPE_CHECKING:
    from ..results.records import Result

ATTRIBUTE = "xverify_results"  # of the report of a test, which pytest-xdist sends to the main process: results as JSON


class Collector:
    """The results of a test run. In a process of pytest-xdist, it hands them on with the reports of the tests.

    files: the paths that the user gave; relative ones begin where pytest was started.
    Raises pytest.UsageError for a file that cannot be written.
    """

    def __init__(self, config: pytest.Config, files: Sequence[str]) -> None:
        self.main = not hasattr(config, "workerinput")
        self.paths = [config.invocation_params.dir / file for file in files]
        self.running: list[Result] = []  # of the test that runs
        self.collected: list[tuple[str, str]] = []  # name of the test, result as JSON
        self.lines: list[str] = []
        self.annotations: list[str] = []
        self.root = config.rootpath
        if self.main and files:
            _check(self.paths)
        asserting.recorders.append(self.running.append)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Add the results of a test to its report."""
        outcome: Any = yield  # pluggy sends its result
        if self.running:
            setattr(outcome.get_result(), ATTRIBUTE, [json.dumps(each.to_dict()) for each in self.running])
            self.running.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the results out of the report of a test, of this process or of another one."""
        if self.main:
            found = getattr(report, ATTRIBUTE, ())
            self.collected += [(report.nodeid, text) for text in found]
            self.annotations += filter(None, [github.annotation(report, bool(found), self.root)])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files. A file that cannot be written makes the exit code 3, unless tests failed."""
        if not self.main or session.config.option.collectonly or not (self.paths or self.collected):
            return
        from .. import outputs
        from ..report.outputs import ENDINGS, of_results

        results = [_named(test, text) for test, text in sorted(self.collected, key=lambda each: each[0])]
        made = of_results(results)
        if not any(path.suffix == ".md" for path in self.paths):
            self.lines += [f"xverify: {said}" for said in filter(None, [github.summarize(results, made["markdown"])])]
        for path in self.paths:
            if not results and path.exists():
                self.lines.append(f"xverify: no test had a result, so {path} stays as it is")
                continue
            try:
                outputs.write(ENDINGS[path.suffix], made[ENDINGS[path.suffix]](), path)
                self.lines.append(f"xverify: {len(results)} result{'s' * (len(results) != 1)} in {path}")
            except NotWritten as error:
                self.lines.append(f"xverify: {error}")
                session.exitstatus = session.exitstatus or pytest.ExitCode.INTERNAL_ERROR

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:  # Any: the class is private in pytest
        """Say which files were written."""
        for line in self.lines:
            terminalreporter.write_sep("-", shown(line))
        for command in self.annotations:
            terminalreporter.write_line(command)

    def pytest_unconfigure(self) -> None:
        """Forget this test run."""
        asserting.recorders.remove(self.running.append)


def _check(paths: Sequence[Path]) -> None:
    """Raise pytest.UsageError for an unknown ending, a file that cannot be written, and one that would be lost."""
    from .. import outputs, writing
    from ..report.outputs import ENDINGS

    for path in paths:
        if path.suffix not in ENDINGS:
            raise pytest.UsageError(f"{OPTION}={path}: the ending tells the format; known: {', '.join(ENDINGS)}")
    try:
        for path in paths:
            writing.check(OPTION, path)
        outputs.check([outputs.Output(OPTION, path, ENDINGS[path.suffix]) for path in paths], force=None)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def _named(test: str, text: str) -> Result:
    """A result with the name of its test among the notes."""
    from ..results.file import decoded

    result = decoded(json.loads(text), test)
    return replace(result, notes=(*result.notes, f"test: {test}"))
