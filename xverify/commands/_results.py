"""What commands with a result file share: a file that cannot be written takes nothing from the report."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import NotWritten
from ..results.records import Result


def measured(measure: Callable[[], Result]) -> tuple[Result, NotWritten | None]:
    """(the result, the error about its file or None). The error is raised when the report has been printed."""
    try:
        return measure(), None
    except NotWritten as error:
        if not isinstance(error.result, Result):
            raise
        return error.result, error
