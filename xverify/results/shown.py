"""How a result is shown in Python and in notebooks."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, cast


class Shown:
    """The reports of a result as values. They are made by the package of reports, which is imported when one is asked for."""

    def to_html(self) -> str:
        """The report as one HTML page with charts, which needs no network."""
        return cast(str, _report("html").page([self]))

    def to_markdown(self) -> str:
        """The report as Markdown in GitHub's dialect."""
        return cast(str, _report("markdown").report([self]))

    def to_dataframe(self) -> Any:  # a DataFrame of pandas
        """The rows as a data frame, with the columns of the CSV. Raises UsageError where pandas is not installed."""
        return _report("csv").data_frame([self])

    def _repr_html_(self) -> str:
        """What a notebook shows: the page in a frame, so that its styles are not those of the notebook."""
        return cast(str, _report("html").framed([self]))


def _report(name: str) -> ModuleType:
    """A module of the reports. It is named in a text, because reports stand above results."""
    return import_module(f"xverify.report.{name}")
