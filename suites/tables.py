"""What all suites print: a table of counts."""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Mapping, Sequence


def table(rows: Mapping[str, Mapping[str, int]], columns: Sequence[str], first: str) -> str:
    """Counts as text, with a line of sums. rows: name -> column -> count. first: the heading of the names."""
    sums = {column: sum(row.get(column, 0) for row in rows.values()) for column in columns}
    shown = {**rows, "all": sums} if len(rows) > 1 else rows
    width = max(len(first), *(len(name) for name in shown)) if shown else len(first)
    lines = ["  ".join([f"{first:{width}}", *columns])]
    for name, row in shown.items():
        lines.append("  ".join([f"{name:{width}}", *(f"{row.get(column, 0):{len(column)}}" for column in columns)]))
    return "\n".join(lines)


def conclude(checked: int, what: str, wrong: int, begun: float) -> int:
    """Print the last line of a suite. Returns its exit code.

    checked: number of ``what``, such as "files". wrong: number of wrong answers. begun: ``time.monotonic()`` at its begin.
    """
    seconds = time.monotonic() - begun
    print(f"{'FAIL' if wrong else 'PASS'}: {checked} {what}, {wrong} wrong answers; {seconds:.0f} s")
    return 1 if wrong else 0


def named(
    parser: argparse.ArgumentParser, option: str, text: str, known: Collection[str], between: str = ","
) -> list[str]:
    """The names of a list. Ends the command with one line about a name that is not known."""
    names = text.split(between)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"{option} {unknown[0]}: unknown; known: {', '.join(known)}")
    return names
