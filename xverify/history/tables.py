"""The tables of the index. `docs/history.md` describes them, because users may ask questions in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

VERSION = 1  # of the tables, and of what is computed for them: an index of another version is made again
TEXT, WHOLE, NUMBER, YES, TIME = "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP"
# Table -> name and type of its columns. A time is in UTC; it is given as microseconds since 1970.
TABLES: Mapping[str, Mapping[str, str]] = {
    "about": {"name": TEXT, "value": TEXT},
    "files": {"file": WHOLE, "path": TEXT, "size": WHOLE, "modified": WHOLE, "kind": TEXT, "problem": TEXT},
    "results": {
        **{"file": WHOLE, "model": TEXT, "tasks": TEXT, "verdict": TEXT, "created": TIME, "xverify": TEXT},
        **{"complete": YES, "cpu": TEXT, "cores": WHOLE, "system": TEXT, "python": TEXT},
    },
    "series": {
        **{"series": WHOLE, "model": TEXT, "task": TEXT, "subject": TEXT, "batch": WHOLE, "threads": WHOLE},
        **{"device": TEXT, "precision": TEXT, "settings": TEXT, "cpu": TEXT, "cores": WHOLE},
    },
    "measurements": {
        **{"series": WHOLE, "file": WHOLE, "created": TIME, "counted": YES, "status": TEXT, "verdict": TEXT},
        **{"reason": TEXT, "rho": NUMBER, "floor": TEXT, "ratio": NUMBER, "low": NUMBER, "high": NUMBER},
        **{"compared": YES, "baseline": TEXT, "fps": NUMBER, "peak_rss_mib": NUMBER, "gpu_peak_mib": NUMBER},
        **{"conditions": WHOLE},
    },
    "conditions": {"conditions": WHOLE, "name": TEXT, "value": TEXT},
    "changes": {
        **{"series": WHOLE, "file": WHOLE, "created": TIME, "newest": YES, "measure": TEXT, "effect": TEXT},
        **{"before": TEXT, "after": TEXT, "factor": NUMBER, "reason": TEXT, "meanwhile": TEXT},
    },
}
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
