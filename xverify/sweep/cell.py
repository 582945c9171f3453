"""Runs one cell. Whatever goes wrong becomes a result with a row for each subject."""

from __future__ import annotations

import datetime
from contextlib import suppress
from pathlib import Path

from .. import host
from ..engine.api import run
from ..engine.stages import Subject, subjects_of
from ..errors import NotWritten, SubjectError, UsageError, first_line
from ..progress import Listener
from ..results import file as result_file
from ..results.records import Host, InputsSummary, ReferenceSummary, Result, Row, WeightsSummary, overall
from ..verdict import outputs
from ..version import __version__
from .planning import Planned

CRASHED = "crashed"


def run_cell(planned: Planned, path: Path, listener: Listener | None = None, *, resume: bool = False) -> Result:
    """Run a cell, write its result file, and return the result.

    resume: whether the file holds the beginning of this run. Raises NotWritten, which holds the result.
    """
    arguments = {**planned.cell.arguments, "json": path, "listener": listener, "force": not path.is_symlink()}
    try:
        if resume and not planned.settings.no_timing:
            with suppress(UsageError):  # the file is of another machine: begin again
                return run(**arguments, resume=True)
        return run(**arguments)
    except NotWritten:
        raise
    except Exception as error:  # also an error of xverify's own: the other cells can run
        says = str(error) if isinstance(error, (UsageError, SubjectError)) else first_line(error)
        result = failed(planned, says)
        result_file.write(result, path)
        return result


def failed(planned: Planned, reason: str, status: str = "failed") -> Result:
    """The result of a cell that could not run."""
    settings = planned.settings
    rows = tuple(_row(planned, each, reason, status) for each in subjects_of(settings))
    return Result(
        model=planned.model,
        tasks=(settings.task,),
        verdict=overall(rows, settings.strict),
        rows=rows,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        xverify=__version__,
        host=Host(**host.describe()),
        settings=settings,
        weights=WeightsSummary(),
        inputs=InputsSummary(cases=settings.cases),
        reference=ReferenceSummary(framework=settings.reference),
        rule=outputs.RULE,
        notes=(reason,),
        item=planned.item,
    )


def _row(planned: Planned, subject: Subject, reason: str, status: str) -> Row:
    settings, framework = planned.settings, subject.adapter.name
    return Row(subject.label, framework, subject.mode, settings.task, settings.device, settings.batch, status, reason)


def has_crashed(result: Result) -> bool:
    """Whether a process of this run ended by itself, or was killed: another try may succeed."""
    return any(row.status == CRASHED for row in result.rows)
