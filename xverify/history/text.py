"""A history, and the answer of a query, as JSON, Markdown and CSV."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from ..report import tables
from ..report.csv import Value, written
from ..report.markdown import LONGEST_NAME, literal
from ..results.records import plain
from . import words
from .changes import RULE
from .query import Answer
from .records import CHANGED, IMPROVED, REGRESSED, SAME, Change, History, Key, Series

MOST_SERIES = 200  # of one heading of a Markdown page, which a pull request may hold
OF_CHANGE = tuple(each.name for each in fields(Change))
HEAD = (*Key._fields, "results", "standing", "newly_worse", *OF_CHANGE)


def as_json(history: History, everything: bool = False) -> str:
    """The history as JSON. everything: also the series without a change, which are otherwise only counted."""
    series = [each for each in history.series if everything or each.changes]
    values = {
        "outcome": words.word(history),
        "folder": history.folder,
        "since": _time(history.since),
        "results": history.results,
        "series_asked_for": len(history.series),
        "series_without_a_change": len(history.of(SAME)),
        "not_results": history.skipped.others,
        "unreadable": history.skipped.unreadable,
        "problems": [{"path": path, "problem": why} for path, why in history.skipped.problems],
        "rule": RULE,
        "series": [_series(each) for each in series],
    }
    return json.dumps(plain(values), indent=1) + "\n"


def _series(of: Series) -> dict[str, object]:
    return {
        **of.key._asdict(),
        "settings": json.loads(of.key.settings),
        "results": of.count,
        "first": _time(of.first),
        "newest": _time(of.last),
        "outcome": of.outcome,
        "standing": of.standing,
        "newly_worse": of.newly_worse,
        "changes": [_change(each) for each in of.changes],
    }


def _change(of: Change) -> dict[str, object]:
    return vars(of) | {"created": _time(of.created)}


def _time(of: datetime.datetime | None) -> str | None:
    return None if of is None else f"{of.isoformat()}+00:00"


def as_csv(history: History, everything: bool = False) -> str:
    """The history as CSV, a row for each change. everything: also a row for each series without a change."""
    return written(HEAD, _rows(history, everything))


def _rows(history: History, everything: bool) -> Iterator[list[object]]:
    for each in history.series:
        start = [*each.key, each.count, each.standing, each.newly_worse]
        for change in each.changes:
            values = {**_change(change), "meanwhile": "; ".join(change.meanwhile)}
            yield [*start, *values.values()]
        if everything and not each.changes:
            yield [*start, *[None] * len(OF_CHANGE)]


def as_markdown(history: History, everything: bool = False) -> str:
    """The history as Markdown. everything: also the series without a change."""
    blocks = [[f"## {words.word(history)}: {literal(words.conclusion(history), 1000)}"]]
    for standing in (REGRESSED, IMPROVED, CHANGED, *([SAME] if everything else [])):
        series = history.of(standing)
        if series:
            blocks.append([f"### {words.HEADINGS[standing]}"])
            blocks.append(_listed(series[:MOST_SERIES]))
        if len(series) > MOST_SERIES:
            blocks.append([f"And {len(series) - MOST_SERIES:,} more series."])
    same = len(history.of(SAME))
    if same and not everything:
        blocks.append([f"{same:,} series without a change."])
    notes = [f"* {literal(line)}" for line in words.skipped(history)]
    blocks += [notes] if notes else []
    blocks.append(["<details><summary>What counts as a change</summary>"])
    blocks += [[literal(RULE)], ["</details>"]]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _listed(series: Iterable[Series]) -> list[str]:
    """A table with a line for each change, the newest of each series first."""
    head = ("when", "series", "change", "changed at the same time", "file")
    return tables.markdown(head, (line for each in series for line in _lines(each)), "---")


def _lines(of: Series) -> Iterator[list[str]]:
    name = f"**{literal(words.name(of), LONGEST_NAME * 3)}** ({literal(words.facts(of.key))})"
    for change in of.changes:
        when = words.moment(change.created) + (", newest" if change.newest else "")
        said = literal(words.what(change)) + (f": {literal(change.reason, 200)}" if change.reason else "")
        same_time = (
            "; ".join(literal(each, 160) for each in change.meanwhile[: words.MOST_MEANWHILE]) or "nothing known"
        )
        yield [when, name, said, same_time, literal(change.path, LONGEST_NAME)]
    if not of.changes:
        yield [words.moment(of.last), name, f"none in {of.count} results", "-", "-"]


# -- the answer of a query --------------------------------------------------------------------------------------------


def answer_as_json(answer: Answer) -> str:
    """The answer as JSON: the names of the columns, and the rows."""
    rows = [[shown(value) for value in row] for row in answer.rows]
    return json.dumps(plain({"columns": answer.columns, "rows": rows}), indent=1) + "\n"


def answer_as_csv(answer: Answer) -> str:
    """The answer as CSV."""
    return written(answer.columns, ([shown(value) for value in row] for row in answer.rows))


def answer_as_markdown(answer: Answer) -> str:
    """The answer as a table in Markdown."""
    rows = ([literal(str(shown(value)), 400) for value in row] for row in answer.rows)
    return "\n".join(tables.markdown(map(literal, answer.columns), rows, "---")) + "\n"


def shown(value: Any) -> Value:  # Any: whatever a column of DuckDB may hold
    """A value as text, a number or nothing."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value.isoformat() if isinstance(value, (datetime.datetime, datetime.date)) else str(value)
