"""The formats in which results are written to a file, by name and by the ending of the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module

from ..results.records import Result

Makers = Mapping[str, Callable[[], str]]  # name of a format -> makes its text
REPORTS = {"html": "page", "markdown": "report", "junit": "report", "csv": "report"}  # a module here -> its function
ENDINGS = {".html": "html", ".md": "markdown", ".json": "json", ".xml": "junit", ".csv": "csv"}


def of_results(results: Sequence[Result]) -> Makers:
    """The texts of these results in every format."""
    return {**{name: partial(_made, name, results) for name in REPORTS}, "json": partial(_json, results)}


def _made(name: str, results: Sequence[Result]) -> str:
    """The report in a format, whose module is imported now."""
    made: str = getattr(import_module(f"{__package__}.{name}"), REPORTS[name])(results)
    return made


def _json(results: Sequence[Result]) -> str:
    """One result as a result file has it, or a list of several."""
    values = [result.to_dict() for result in results]
    return json.dumps(values[0] if len(values) == 1 else values, indent=1) + "\n"
