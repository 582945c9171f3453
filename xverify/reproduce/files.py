"""The files of a reproduced experiment: its result as JSON, its tables as Markdown, and the reports of its runs as a page."""

from __future__ import annotations

import json
from dataclasses import asdict

from ..report import html, tables
from ..version import __version__
from .columns import columns, rate
from .notes import closing_notes, part_notes, title
from .records import Part, Reproduction
from .table import TableRow, table_rows

SCHEMA_VERSION = 1


def as_json(done: Reproduction) -> str:
    """The result file."""
    return json.dumps(to_dict(done), indent=1) + "\n"


def page(done: Reproduction) -> str:
    """The reports of all runs so far as one page."""
    return html.page([run.result for run in done.part_runs if run.result is not None])


def to_dict(done: Reproduction) -> dict[str, object]:
    """The tables and all runs, as JSON values."""
    experiment = done.experiment
    return {
        "schema_version": SCHEMA_VERSION,
        "xverify": __version__,
        "created": done.created,
        "experiment": experiment.name,
        "question": experiment.question,
        "scale": done.scale,
        "repeats": done.repeats,
        "data": done.data,
        "verdict": done.verdict,
        "complete": done.complete,
        "stopped": done.stopped,
        "notes": list(experiment.notes),
        "sources": [asdict(source) for source in experiment.sources],
        "tables": [
            {
                "part": asdict(part),
                "title": title(part, done.scale),
                "rows": [row.to_dict() for row in table_rows(experiment, part, done.scale, done.of(part))],
            }
            for part in experiment.parts
            if done.of(part)
        ],
        "runs": [
            {
                "part": experiment.place(run.part),
                "repeat": run.repeat,
                "failure": run.failure,
                "result": run.result.to_dict() if run.result is not None else None,
            }
            for run in done.part_runs
        ],
    }


def markdown(done: Reproduction) -> str:
    """The whole report as Markdown; parts that have not been run are left out."""
    text = [f"# {done.experiment.name}", "", done.experiment.question, ""]
    for part in done.experiment.parts:
        if done.of(part):
            text += _section(done, part)
    return "\n".join([*text, *(f"* {note}" for note in closing_notes(done)), ""])


def _section(done: Reproduction, part: Part) -> list[str]:
    rows = table_rows(done.experiment, part, done.scale, done.of(part))
    shown = columns(done.experiment, part, rows)

    def cells(row: TableRow) -> list[str]:
        written = {column.title: column.cell(row) for column in shown}
        if not row.counted:
            why = f": {row.not_counted}" if row.not_counted else ""
            written[rate(part)] = f"~~{written[rate(part)]}~~ not counted{why}"
        return list(written.values())

    table = tables.markdown([column.title for column in shown], [cells(row) for row in rows])
    return [
        f"## {title(part, done.scale)}",
        "",
        *table,
        "",
        *(f"* {note}" for note in part_notes(done, part, rows)),
        "",
    ]
