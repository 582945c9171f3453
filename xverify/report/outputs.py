"""The formats in which results are written to a file, by name and by the ending of the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from ..results.records import Result

Makers = Mapping[str, Callable[[], str]]  # name of a format -> makes its text
ENDINGS = {".html": "html", ".md": "markdown", ".json": "json", ".xml": "junit", ".csv": "csv"}


def of_results(results: Sequence[Result]) -> Makers:
    """The texts of these results in every format. A format is imported when its text is made."""
    return {
        "html": lambda: _html(results),
        "markdown": lambda: _markdown(results),
        "junit": lambda: _junit(results),
        "csv": lambda: _csv(results),
        "json": lambda: _json(results),
    }


def _html(results: Sequence[Result]) -> str:
    from . import html

    return html.page(results)


def _markdown(results: Sequence[Result]) -> str:
    from . import markdown

    return markdown.report(results)


def _junit(results: Sequence[Result]) -> str:
    from . import junit

    return junit.report(results)


def _csv(results: Sequence[Result]) -> str:
    from . import csv

    return csv.report(results)


def _json(results: Sequence[Result]) -> str:
    """One result as a result file has it, or a list of several."""
    values = [result.to_dict() for result in results]
    return json.dumps(values[0] if len(values) == 1 else values, indent=1) + "\n"
