"""The tables of the index. `docs/history.md` describes them, because users may ask questions in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_type_hints

from .records import Entry, Key, Measurement, Point

VERSION = 1  # of the tables, and of what is computed for them: an index of another version is made again
TEXT, WHOLE, NUMBER, YES, TIME = "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP"
KINDS = {str: TEXT, int: WHOLE, float: NUMBER, bool: YES}


def _columns(record: type) -> dict[str, str]:
    """Name -> type of the columns that hold the plain fields of a record."""
    hints = {name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(record).items()}
    return {name: KINDS[kind] for name, kind in hints.items() if kind in KINDS}


# Table -> name and type of its columns. A time is in UTC; it is given as microseconds since 1970.
TABLES: Mapping[str, Mapping[str, str]] = {
    "about": {"name": TEXT, "value": TEXT},
    "files": {"file": WHOLE, "path": TEXT, "size": WHOLE, "modified": WHOLE, "kind": TEXT, "problem": TEXT},
    "results": {"file": WHOLE, **_columns(Entry), "created": TIME},
    "series": {"series": WHOLE, **_columns(Key)},
    "measurements": {
        **{"series": WHOLE, "file": WHOLE, "created": TIME, "counted": YES},
        **_columns(Measurement),
        **{"conditions": WHOLE},
    },
    "conditions": {"conditions": WHOLE, "name": TEXT, "value": TEXT},
    "changes": {
        **{"series": WHOLE, "file": WHOLE, "created": TIME, "newest": YES, "measure": TEXT, "effect": TEXT},
        **{"before": TEXT, "after": TEXT, "factor": NUMBER, "reason": TEXT, "meanwhile": TEXT},
    },
}
# The fields of a point, as they are asked for from ``measurements m``.
POINT = ", ".join("epoch_us(m.created)" if name == "created" else f"m.{name}" for name in Point._fields)
RESULT, OTHER, UNREADABLE = "result", "other", "unreadable"  # the kinds of files

Connection = Any  # of DuckDB, which is optional


def create(connection: Connection) -> None:
    """Make the empty tables."""
    for table, columns in TABLES.items():
        names = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        connection.execute(f"CREATE TABLE {table} ({names})")


def insert(connection: Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Add rows to a table. Each has the values of all columns, in their order."""
    import numpy  # late: most calls add nothing

    if not rows:
        return
    kinds = TABLES[table]
    arrays = {}
    for (name, kind), values in zip(kinds.items(), zip(*rows)):
        if kind == TEXT:
            array = numpy.empty(len(values), dtype=object)
            array[:] = values
        elif kind == NUMBER:
            array = numpy.array([numpy.nan if value is None else value for value in values], dtype=numpy.float64)
        else:
            array = numpy.array(values, dtype=numpy.bool_ if kind == YES else numpy.int64)
        arrays[name] = array
    connection.register("added", arrays)
    try:
        connection.execute(f"INSERT INTO {table} SELECT {', '.join(_read(kinds))} FROM added")
    finally:
        connection.unregister("added")


def _read(columns: Mapping[str, str]) -> Iterable[str]:
    """How each column is read from arrays: NaN stands for no number, and a time is a number of microseconds."""
    written = {NUMBER: "nullif(\"{0}\", 'nan'::DOUBLE)", TIME: 'make_timestamp("{0}")'}
    return (written.get(kind, '"{0}"').format(name) for name, kind in columns.items())
