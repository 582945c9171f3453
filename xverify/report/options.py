"""The options of every command that can write its report to files, declared once."""

from __future__ import annotations

from dataclasses import dataclass

from ..workload.declaration import option
from ..workload.options import OUTPUT, FilePath

FORMATS = ("json", "markdown", "csv")


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The outputs of a report and of a comparison."""

    markdown: FilePath | None = option(
        None, "write the report as Markdown, for a pull request or an issue", group=OUTPUT, metavar="FILE", path="written"
    )  # fmt: skip
    junit: FilePath | None = option(
        None, "write the report as JUnit XML, for a CI server", group=OUTPUT, metavar="FILE", path="written"
    )
    csv: FilePath | None = option(
        None, "write the rows as CSV, for a spreadsheet", group=OUTPUT, metavar="FILE", path="written"
    )
    format: str | None = option(
        None, f"print the report in one of these formats instead of tables: {', '.join(FORMATS)}", group=OUTPUT,
        metavar="FORMAT", choices=FORMATS,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Page:
    """The page of a report."""

    html: FilePath | None = option(
        None, "write the report as one HTML page with charts", group=OUTPUT, metavar="FILE", path="written"
    )
