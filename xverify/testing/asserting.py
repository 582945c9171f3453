"""Runs a port in a test, and fails unless every row is right."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ..results.records import Result

sessions: list[ExitStack] = []  # of pytest: what lasts until the end of the test run; none where nobody would end it
recorders: list[Callable[[Result], None]] = []  # each is given every result; the plugin has one when a report is wanted


def assert_port_equal(
    model: str | Path,
    subjects: Sequence[str] | None = None,
    *,
    allow: Sequence[str] = (),
    **settings: Any,  # the keyword arguments of xverify.run, each with its own type
) -> Result:
    """Verify a model as ``xverify run`` does, and raise AssertionError unless every row is IDENTICAL, EQUAL or DRIFT.

    The message names each row that is wrong, its first wrong layer or training-parity check, the cause, and the measured value
    beside its limit. A row that is UNTESTED or could not run fails, and so does a run that compared nothing with the reference.
    DRIFT is a Python warning, and fails with ``strict=True``. Returns the result.

    model: a model folder, which is looked for beside the file of the test and then in the current directory, or a name of the zoo.
    subjects: the rows, as in ``xverify.run``; a file that one of them names is looked for as the folder is. When omitted, every
        framework that has a file in the folder. One that is not installed then fails, too.
    allow: which of "UNTESTED", "unsupported" and "not-installed" does not fail.
    settings: of ``xverify.run``, such as task, batch, optimizer or seed. Nothing is timed unless one of them says how.
    Raises XverifyError when the model cannot be run at all.
    """
    __tracebackhide__ = True
    from .failing import check_allowed, drifts, failures

    check_allowed(allow)
    result = run_port(model, subjects, **settings)
    said = failures(result, allow, named=subjects is not None)
    if said:
        raise AssertionError(said)
    for text in drifts(result):
        warnings.warn(text, stacklevel=2)
    return result


def run_port(
    model: str | Path,
    subjects: Sequence[str] | None = None,
    **settings: Any,  # the keyword arguments of xverify.run, each with its own type
) -> Result:
    """Run a model as ``xverify.run`` does, with the same arguments, and put the result into the report of the test run.

    Nothing is timed unless a setting says how. Raises KeyboardInterrupt where ``xverify.run`` would return what it has by then.
    """
    __tracebackhide__ = True
    from ..engine.api import ARGUMENTS, SETTINGS, run
    from ..errors import XverifyError, nearest
    from ..workload.options import OF_TIMING

    known = [*(each.name for each in (*ARGUMENTS, *SETTINGS)), "listener"]
    strange = next((name for name in settings if name not in known), None)
    if strange is not None:
        raise TypeError(f"unknown setting {strange!r}{nearest(strange, known)}")
    keep_frameworks()
    settings.setdefault("no_timing", not any(settings.get(name) for name in (*OF_TIMING, "effort")))
    try:
        place = _place_of_the_test()
        folder = place / model
        result = run(folder if (folder / "spec.py").is_file() else model, _beside(subjects, place), **settings)
    except XverifyError as error:
        raise error.with_traceback(None) from None  # the frames of xverify say nothing about the port
    if result.interrupted:
        raise KeyboardInterrupt
    for record in recorders:
        record(result)
    return result


def keep_frameworks() -> None:
    """Keep the frameworks that tests import until the end of the test run, so that the next test does not import them again."""
    from ..processes import forking

    if sessions and not forking.are_kept():
        sessions[-1].enter_context(forking.kept())


def _beside(subjects: Sequence[str] | None, place: Path) -> list[str] | None:
    """The subjects with the files that they name in this folder, where they are there. ``xverify.run`` tells of a wrong type."""
    from ..framework import ports

    if not isinstance(subjects, (list, tuple)) or not all(isinstance(each, str) for each in subjects):
        return cast("list[str] | None", subjects)
    return [ports.beside(each, place) for each in subjects]


def _place_of_the_test() -> Path:
    """The folder of the file that called this package."""
    frame = sys._getframe()
    while frame.f_back is not None and Path(frame.f_code.co_filename).parent == Path(__file__).parent:
        frame = frame.f_back
    return Path(frame.f_code.co_filename).resolve().parent
