"""Tables in a terminal, with the columns that fit into its width, and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from .text import escape, quoted
from .wrapping import wrapped

T = TypeVar("T")
UNLIMITED = 1000  # characters: wider than any table


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table whose rows are of type T.

    title: the text above the column.
    cell: makes the text of a row's cell, in rich's markup.
    left: whether cells are aligned to the left, as words are; numbers are aligned to the right.
    short: the text above the column when the table is too wide with ``title``; "" for the same.
    brief: makes a shorter cell for a table that is still too wide; None for the same.
    """

    title: str
    cell: Callable[[T], str]
    left: bool = False
    short: str = ""
    brief: Callable[[T], str] | None = None

    def shortened(self) -> Column[T]:
        """The same column with its short title."""
        return replace(self, title=self.short or self.title)

    def narrow(self) -> Column[T]:
        """The same column with its short title on two lines."""
        title = self.short or self.title
        return replace(self, title=title if "\n" in title else title.replace(" ", "\n", 1))

    def narrowest(self) -> Column[T]:
        """The same column with its brief cell, which needs no remark in brackets in its title."""
        if self.brief is None:
            return self.narrow()
        title = self.title.partition(" (")[0].replace("s/s", "s\n/s")
        return replace(self, title=title, cell=self.brief).narrow()


def table(
    columns: Sequence[Column[T]], rows: Iterable[T], title: str | None = None, made: Titled | None = None
) -> Titled:
    """A table whose cells are not broken into several lines. made: it, still empty; one of ``headed`` when omitted."""
    made = headed(title) if made is None else made
    for column in columns:
        made.add_column(
            "\n".join(map(escape, column.title.splitlines())), justify="left" if column.left else "right", no_wrap=True
        )
    for row in rows:
        made.add_row(*(column.cell(row) for column in columns))
    return made


class Titled(Table):
    """A table with a title above it and notes below it, which may be wider than its columns. They hold no markup of rich."""

    def __init__(self, heading: str | None, notes: Sequence[str] = (), **settings: Any) -> None:  # settings: rich's
        super().__init__(**settings)
        self.heading, self.notes = heading, list(notes)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.heading:
            yield _sentence(Text(quoted(self.heading), "table.title"), console, options)
        yield from super().__rich_console__(console, options)
        for note in self.notes:
            yield _sentence(Text(quoted(note)), console, options)


def _sentence(text: Text, console: Console, options: ConsoleOptions) -> Text:
    """A text that only a terminal breaks into lines."""
    if console.is_terminal:
        text = wrapped(text, options.max_width)
    text.no_wrap, text.overflow = True, "ignore"
    return text


def headed(title: str | None = None) -> Titled:
    """An empty table with a title at the left and a line under the titles of its columns."""
    return Titled(title, box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)


def borderless(title: str | None = None) -> Titled:
    """An empty table without any rule."""
    return Titled(title, box=None, pad_edge=False)


class FirstThatFits:
    """The first of several tables that fits into the width of the console; the last table when none fits."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables = tuple(tables)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unlimited = options.update(width=UNLIMITED)
        fitting = (
            each for each in self.tables if console.measure(each, options=unlimited).maximum <= options.max_width
        )
        yield next(fitting, self.tables[-1])


def narrower(columns: Sequence[Column[T]], dispensable: Sequence[str]) -> Iterator[list[Column[T]]]:
    """Yield lists of columns that need less and less width.

    All columns; with short titles; with titles on two lines; with brief cells; then fewer columns.

    dispensable: titles of the columns to leave out, in this order.
    """
    yield list(columns)
    yield [column.shortened() for column in columns]
    yield [column.narrow() for column in columns]
    kept = {column.title: column.narrowest() for column in columns}
    yield list(kept.values())
    for title in dispensable:
        if kept.pop(title, None) is not None:
            yield list(kept.values())


def ending(name: str, longest: int) -> str:
    """The end of a name, which tells it from others, where it has more than this number of characters."""
    return name if len(name) <= longest else f"…{name[1 - longest :]}"


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]], rule: str = "---:") -> list[str]:
    """The lines of a Markdown table.

    rule: the alignment of all columns except the first, which is aligned to the left: "---:" to the right, ":-:" in the middle.
    """
    titles = list(head)
    return [_line(titles), "|---" + f"|{rule}" * (len(titles) - 1) + "|", *(_line(row) for row in rows)]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
