"""Questions to an index: what changed, the points of a series, and whatever a user asks in SQL."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import UsageError, nearest
from . import tables
from .index import duckdb, is_damage
from .records import CHANGED, IMPROVED, REGRESSED, SAME, Change, History, Key, Point, Series, Skipped
from .tables import Connection

MOST_PROBLEMS = 3  # files that cannot be read and are named
MOST_ROWS = 1_000_000  # rows of an answer
ORDER = (REGRESSED, IMPROVED, CHANGED, SAME)
CHANGE = ", ".join("f.path" if each.name == "path" else f"c.{each.name}" for each in fields(Change))
KEY = ", ".join(f's."{name}"' for name in Key._fields)


@dataclass(frozen=True)
class Asked:
    """What a user wants to see.

    models: names of models; all when empty.
    subjects: names of subjects, or of frameworks for all of their modes; all when empty.
    since: changes before this time are left out, and series without a result since then.
    """

    models: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    since: datetime.datetime | None = None


@dataclass(frozen=True)
class Answer:
    """The answer of a query of a user: the names of the columns, and the rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def history(connection: Connection, folder: str, asked: Asked) -> History:
    """What changed in the series that were asked for. Raises UsageError for a model or a subject that is not there."""
    [(results,)] = connection.execute("SELECT count(*) FROM results").fetchall()
    where, values = _where(connection, asked, results)
    found = connection.execute(
        f"SELECT s.series, count(*), min(m.created), max(m.created), arg_max(coalesce(m.verdict, m.status), m.created), {KEY} "
        f"FROM measurements m JOIN series s USING (series) WHERE m.counted AND {where} GROUP BY ALL "
        f"{'HAVING max(m.created) >= ?' if asked.since is not None else ''}",
        [*values, *([asked.since] if asked.since is not None else [])],
    ).fetchall()
    changes = _changes(connection, where, values, asked.since)
    series = [
        Series(number, Key(*key), count, first, last, outcome, tuple(changes.get(number, ())))
        for number, count, first, last, outcome, *key in found
    ]
    return History(folder, results, tuple(sorted(series, key=_rank)), asked.since, _skipped(connection))


def _rank(of: Series) -> tuple[Any, ...]:
    latest = -max((change.created.timestamp() for change in of.changes), default=0.0)
    return (not of.newly_worse, ORDER.index(of.standing), latest, of.key)


def _where(connection: Connection, asked: Asked, results: int) -> tuple[str, list[Any]]:
    """The condition on series ``s``, and its values."""
    conditions, values = ["true"], []
    for column, names, what in (
        ("model", asked.models, "no result of a model"),
        ("subject", asked.subjects, "--subjects: no result of"),
    ):
        if names and results:
            known = _known(connection, column)
            taken: list[str] = []
            for name in names:
                found = [
                    each for each in known if each == name or (column == "subject" and each.startswith(f"{name}:"))
                ]
                if not found:
                    raise UsageError(f"{what} {name[:200]!r} is in the folder{nearest(name[:200], known)}")
                taken += found
            conditions.append(f"s.{column} IN (SELECT unnest(?::VARCHAR[]))")
            values.append(taken)
    return " AND ".join(conditions), values


def _known(connection: Connection, column: str) -> list[str]:
    return [name for (name,) in connection.execute(f"SELECT DISTINCT {column} FROM series ORDER BY 1").fetchall()]


def _changes(
    connection: Connection, where: str, values: Sequence[Any], since: datetime.datetime | None
) -> dict[int, list[Change]]:
    """Series -> its changes, the newest first."""
    rows = connection.execute(
        f"SELECT c.series, {CHANGE} FROM changes c JOIN series s USING (series) JOIN files f USING (file) WHERE {where} "
        f"{'AND c.created >= ?' if since is not None else ''} ORDER BY c.created DESC, c.measure DESC",
        [*values, *([since] if since is not None else [])],
    ).fetchall()
    found: dict[int, list[Change]] = {}
    for series, *values in rows:
        meanwhile = tuple(json.loads(values[-1]))
        found.setdefault(series, []).append(replace(Change(*values), meanwhile=meanwhile))
    return found


def _skipped(connection: Connection) -> Skipped:
    counts = dict(connection.execute("SELECT kind, count(*) FROM files GROUP BY kind").fetchall())
    problems = connection.execute(
        "SELECT path, problem FROM files WHERE kind = ? ORDER BY modified DESC, path LIMIT ?",
        [tables.UNREADABLE, MOST_PROBLEMS],
    ).fetchall()
    return Skipped(counts.get(tables.OTHER, 0), counts.get(tables.UNREADABLE, 0), tuple(problems))


def points(connection: Connection, series: Sequence[int]) -> dict[int, list[Point]]:
    """Series -> all of its points in the order of time."""
    rows = connection.execute(
        f"SELECT m.series, {tables.POINT} FROM measurements m WHERE m.counted AND m.series IN (SELECT unnest(?::BIGINT[])) "
        "ORDER BY m.series, m.created",
        [list(series)],
    ).fetchall()
    found: dict[int, list[Point]] = {}
    for number, *values in rows:
        found.setdefault(number, []).append(Point(*values))
    return found


def answer(connection: Connection, query: str) -> Answer:
    """The answer of one SELECT. Raises UsageError for anything else, for a mistake in it, and for an answer without end."""
    module = duckdb()
    try:
        query.encode()
        statements = module.extract_statements(query)
        if len(statements) != 1 or statements[0].type not in (
            module.StatementType.SELECT,
            module.StatementType.EXPLAIN,
        ):
            raise UsageError("--sql takes one SELECT, which reads the index and changes nothing")
        done = connection.execute(statements[0])
        rows = done.fetchmany(MOST_ROWS + 1)
        columns = tuple(each[0] for each in done.description)
    except module.Error as error:
        if is_damage(error):
            raise
        raise UsageError(f"--sql: {_message(error)}") from None
    except UnicodeError:
        raise UsageError("--sql is no text in UTF-8") from None
    if len(rows) > MOST_ROWS:
        raise UsageError(f"--sql: the answer has more than {MOST_ROWS:,} rows: add a LIMIT")
    return Answer(columns, tuple(rows))


def _message(error: Exception) -> str:
    """An error of DuckDB in one line, without the drawing of the place in the query."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(("LINE ", "^"))]
    return " ".join(said)[:400]
