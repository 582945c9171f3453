"""Tables: in a terminal, as wide as fits, and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

T = TypeVar("T")
UNLIMITED = 1000  # characters: wider than any table


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table whose rows are of type T.

    title: its head. cell: the text of a row's cell, in rich's markup. left: set to the left, as words are; numbers are set to
    the right. short: its head where the table is too wide with the whole one.
    """

    title: str
    cell: Callable[[T], str]
    left: bool = False
    short: str = ""


def table(columns: Sequence[Column[T]], rows: Iterable[T], title: str) -> Table:
    """A table with a line under its head. Cells are not broken over lines."""
    made = headed(title)
    for column in columns:
        made.add_column(column.title, justify="left" if column.left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(column.cell(row) for column in columns))
    return made


def headed(title: str | None = None) -> Table:
    """An empty table with a title at the left and a line under its head."""
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)


def borderless(title: str | None = None) -> Table:
    """An empty table without any line."""
    return Table(title=title, title_justify="left", box=None, pad_edge=False)


class FirstThatFits:
    """The first of several tables that the console is wide enough for; the last one when none is."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables = tuple(tables)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unlimited = options.update(width=UNLIMITED)
        fitting = (
            each for each in self.tables if console.measure(each, options=unlimited).maximum <= options.max_width
        )
        yield next(fitting, self.tables[-1])


def narrower(columns: Sequence[Column[T]], dispensable: Sequence[str]) -> Iterator[list[Column[T]]]:
    """All columns; then the same with short heads; then fewer and fewer of them.

    dispensable: titles of the columns to leave out, in this order.
    """
    yield list(columns)
    kept = {column.title: replace(column, title=column.short or column.title) for column in columns}
    yield list(kept.values())
    for title in dispensable:
        if kept.pop(title, None) is not None:
            yield list(kept.values())


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]], rule: str = "---:") -> list[str]:
    """The lines of a Markdown table.

    rule: the line under every head but the first, which is set to the left; "---:" is to the right, ":-:" in the middle.
    """
    titles = list(head)
    return [_line(titles), "|---" + f"|{rule}" * (len(titles) - 1) + "|", *(_line(row) for row in rows)]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
