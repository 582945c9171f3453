"""The plugin of pytest. It is loaded in every test run, so it imports nothing of xverify before a test or an option needs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from . import asserting

if TYPE_CHECKING:
    from ..results.records import Result

OPTION = "--xverify-report"
RUNS = "GITHUB_ACTIONS"  # an environment variable: "true" in a workflow on GitHub


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option."""
    parser.getgroup("xverify").addoption(
        OPTION,
        metavar="FILE",
        action="append",
        default=[],
        help="write the results of all tests that run a model with xverify to FILE: .html, .md, .json, .xml (JUnit) or .csv, "
        "e.g. --xverify-report=report.html; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let tests keep what later ones use, and collect their results when a report is wanted, or for GitHub."""
    asserting.sessions.append(ExitStack())
    files = config.getoption(OPTION)
    if files or os.environ.get(RUNS) == "true" or os.environ.get("GITHUB_STEP_SUMMARY"):
        from .collecting import Collector

        config.pluginmanager.register(Collector(config, files), "xverify-report")


def pytest_unconfigure() -> None:
    """End what tests have kept."""
    asserting.sessions.pop().close()


@pytest.fixture
def xverify_run() -> Callable[..., Result]:
    """Run a model as xverify.run does, without timing, and return its result: xverify_run("my_port", ["torch:eager", "jittor"]).

    Nothing is asserted. The result is in the report of --xverify-report.
    """
    from .asserting import run_port

    return run_port
