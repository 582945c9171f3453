"""Brings an index up to date: new and changed files are read, those that are gone are removed, and series are compared again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ..progress import Listener
from ..report import numbers
from ..version import __version__
from . import reading, tables
from .changes import VERDICT, Found, changes, differing
from .files import Files
from .records import Point
from .tables import Connection, insert

LONG = 500  # files; reading fewer takes no time worth telling
BEAT_SECONDS = 0.5  # between two signs of progress
CHUNK = 4000  # files that are read before they are written
ABOUT = {"version": str(tables.VERSION), "xverify": __version__}


@dataclass(frozen=True)
class Known:
    """The files that an index holds: path -> (number, size, time)."""

    files: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, connection: Connection, folder: Path, path: Path) -> Known | None:
        """What the index at this path holds; None for an index of another version or of another folder."""
        about = dict(connection.execute("SELECT name, value FROM about").fetchall())
        if any(about.get(name) != value for name, value in ABOUT.items()) or about.get("folder") != _place(
            folder, path
        ):
            return None
        found = connection.execute("SELECT path, file, size, modified FROM files").fetchall()
        return cls({path: (number, size, modified) for path, number, size, modified in found})

    def is_up_to_date(self, files: Files) -> bool:
        """Whether the index holds exactly these files, as they are now."""
        return len(self.files) == len(files.sizes) and not any(True for _ in self.changed(files))

    def changed(self, files: Files) -> Iterator[str]:
        """The paths of new and changed files."""
        for path, found in files.sizes.items():
            known = self.files.get(path)
            if known is None or known[1:] != found:
                yield path

    def gone(self, files: Files) -> list[int]:
        """The numbers of files that are not there any more, or have changed."""
        return [number for path, (number, *found) in self.files.items() if files.sizes.get(path) != tuple(found)]


def begin(connection: Connection, folder: Path, path: Path) -> None:
    """Make the tables of a new index, which will be at this path."""
    tables.create(connection)
    insert(connection, "about", [*ABOUT.items(), ("folder", _place(folder, path))])


def _place(folder: Path, path: Path) -> str:
    """The folder of an index; "" where the index is in it, and may be moved with it."""
    inside = path.absolute().parent.resolve() == folder.resolve()
    return "" if inside else reading.clean(str(folder.resolve()))


def bring_up_to_date(connection: Connection, known: Known, files: Files, listener: Listener) -> None:
    """Read what is new, remove what is gone, and compare the series again in which something changed."""
    connection.execute("CREATE TEMP TABLE affected (series BIGINT)")
    _remove(connection, known.gone(files))
    _add(connection, known, files, listener)
    connection.execute("CREATE TEMP TABLE again AS SELECT DISTINCT series FROM affected")
    _compare(connection)
    connection.execute("DELETE FROM series WHERE series NOT IN (SELECT series FROM measurements)")
    connection.execute("DELETE FROM conditions WHERE conditions NOT IN (SELECT conditions FROM measurements)")
    connection.execute("DROP TABLE affected; DROP TABLE again")


def _remove(connection: Connection, gone: Sequence[int]) -> None:
    if gone:
        connection.execute("CREATE TEMP TABLE gone AS SELECT unnest(?::BIGINT[]) AS file", [gone])
        connection.execute("INSERT INTO affected SELECT series FROM measurements WHERE file IN (SELECT file FROM gone)")
        for table in ("files", "results", "measurements"):
            connection.execute(f"DELETE FROM {table} WHERE file IN (SELECT file FROM gone)")
        connection.execute("DROP TABLE gone")


# -- reading ----------------------------------------------------------------------------------------------------------


class _Rows:
    """The rows that wait to be written, by table."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.waiting: dict[str, list[Sequence[Any]]] = {}
        self.numbers: dict[Sequence[Any], int] = {}  # values -> their number
        self.seen: dict[str, set[int]] = {
            table: {number for (number,) in connection.execute(f"SELECT DISTINCT {table} FROM {table}").fetchall()}
            for table in ("series", "conditions")
        }

    def add(self, table: str, row: Sequence[Any]) -> None:
        self.waiting.setdefault(table, []).append(row)

    def number(self, table: str, of: Sequence[Any], rows: Iterable[Sequence[Any]]) -> int:
        """Return the number of a series or of conditions. When it is new, add its rows.

        rows: the values of each row after the number.
        """
        number = self.numbers.get(of)
        if number is None:
            number = self.numbers[of] = reading.identity(of)
        if number not in self.seen[table]:
            self.seen[table].add(number)
            for row in rows:
                self.add(table, (number, *row))
        return number

    def write(self) -> None:
        for table, rows in self.waiting.items():
            insert(self.connection, table, rows)
        series = [row[0] for row in self.waiting.get("measurements", ())]
        if series:
            self.connection.execute("INSERT INTO affected SELECT unnest(?::BIGINT[])", [sorted(set(series))])
        self.waiting = {}


def _add(connection: Connection, known: Known, files: Files, listener: Listener) -> None:
    """Read new and changed files into the tables."""
    new = sorted(known.changed(files))
    rows = _Rows(connection)
    number = max((each[0] for each in known.files.values()), default=0)
    begun = told = time.monotonic()
    if len(new) >= LONG:
        listener.phase("index", f"reading {len(new):,} new or changed files")
    for count, path in enumerate(new, 1):
        number += 1
        _read(rows, number, path, files)
        if count % CHUNK == 0:
            rows.write()
        now = time.monotonic()
        if len(new) >= LONG and now - told >= BEAT_SECONDS:
            told, spent = now, now - begun
            left = numbers.duration(spent / count * (len(new) - count))
            listener.beat("index", spent, f"{count:,} of {len(new):,} files, {left} left")
    rows.write()
    if len(new) >= LONG:
        listener.ended("index", "")


def _read(rows: _Rows, number: int, path: str, files: Files) -> None:
    """Read one file. One that has vanished is left out, so that it is looked for again at the next call."""
    size, modified = files.sizes[path]
    kind, problem = tables.RESULT, ""
    try:
        entry = reading.read(files.place(path), modified)
    except FileNotFoundError:
        return
    except OSError as error:
        kind, problem = tables.UNREADABLE, f"it cannot be read: {error.strerror or error}"
    except reading.NotAResult:
        kind = tables.OTHER
    except reading.Unreadable as error:
        kind, problem = tables.UNREADABLE, str(error)
    rows.add("files", (number, path, size, modified, kind, problem))
    if kind != tables.RESULT:
        return
    rows.add("results", (number, *entry[:-1]))
    taken: set[int] = set()
    for each in entry.measurements:
        series = rows.number("series", each.key, [each.key])
        if series not in taken:  # a subject that was named twice counts once
            taken.add(series)
            conditions = rows.number("conditions", each.conditions, each.conditions)
            rows.add("measurements", (series, number, entry.created, True, *each[1:-1], conditions))


# -- comparing --------------------------------------------------------------------------------------------------------


def _compare(connection: Connection) -> None:
    """Find the changes of the affected series again. A result that is in the folder twice counts once: the file written last."""
    among = "series IN (SELECT series FROM again)"
    connection.execute(f"DELETE FROM changes WHERE {among}")
    connection.execute(f"UPDATE measurements SET counted = true WHERE NOT counted AND {among}")
    connection.execute(
        f"SELECT m.series, {tables.POINT} FROM measurements m JOIN files f USING (file) WHERE m.{among} "
        "ORDER BY m.series, m.created, f.modified, m.file"
    )
    copies: list[tuple[int, int]] = []
    found: list[tuple[int, bool, Found]] = []
    wanted: set[int] = set()
    for series, rows in groupby(_fetched(connection), key=lambda row: row[0]):
        points: list[Point] = []
        for row in rows:
            point = Point._make(row[1:])
            if points and points[-1].created == point.created:
                copies.append((series, points.pop().file))
            points.append(point)
        for change in changes(points):
            wanted |= {change.previous.conditions, change.point.conditions}
            found.append((series, points[-1].file == change.point.file, change))
    conditions = _conditions(connection, wanted)
    insert(connection, "changes", [_change(series, newest, change, conditions) for series, newest, change in found])
    if copies:
        columns = [list(each) for each in zip(*copies)]
        listed = "(SELECT unnest(?::BIGINT[]) AS series, unnest(?::BIGINT[]) AS file) copy"
        connection.execute(
            f"UPDATE measurements SET counted = false FROM {listed} "
            "WHERE measurements.series = copy.series AND measurements.file = copy.file",
            columns,
        )


def _fetched(connection: Connection) -> Iterator[tuple[Any, ...]]:
    while rows := connection.fetchmany(50_000):
        yield from rows


def _conditions(connection: Connection, wanted: set[int]) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    query = "SELECT conditions, name, value FROM conditions WHERE conditions IN (SELECT unnest(?::BIGINT[]))"
    for number, name, value in connection.execute(query, [sorted(wanted)]).fetchall():
        found.setdefault(number, {})[name] = value
    return found


def _change(series: int, newest: bool, change: Found, conditions: dict[int, dict[str, str]]) -> Sequence[Any]:
    before, after = (conditions.get(each.conditions, {}) for each in (change.previous, change.point))
    reason = change.point.reason if change.measure == VERDICT else ""
    meanwhile = json.dumps(differing(before, after), ensure_ascii=False)
    return (
        *(series, change.point.file, change.point.created, newest, change.measure, change.effect, change.before),
        *(change.after, change.factor, reason, meanwhile),
    )
