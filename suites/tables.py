"""What all suites print: a table of counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def table(rows: Mapping[str, Mapping[str, int]], columns: Sequence[str], first: str) -> str:
    """Counts as text, with a line of sums. rows: name -> column -> count. first: the heading of the names."""
    sums = {column: sum(row.get(column, 0) for row in rows.values()) for column in columns}
    shown = {**rows, "all": sums} if len(rows) > 1 else rows
    width = max(len(first), *(len(name) for name in shown)) if shown else len(first)
    lines = ["  ".join([f"{first:{width}}", *columns])]
    for name, row in shown.items():
        lines.append("  ".join([f"{name:{width}}", *(f"{row.get(column, 0):{len(column)}}" for column in columns)]))
    return "\n".join(lines)
