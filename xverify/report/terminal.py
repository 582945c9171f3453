"""Print a result: its tables, the sentences under them, and the verdict as the last line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ..errors import printable
from ..results.records import Result
from . import content, curves, layers, plan, quantisation
from .decoding import decoding_tables
from .notes import duration, warnings, where_time_went
from .rows import details as details_tables
from .style import coloured
from .text import escape, quoted
from .training import training_tables
from .wrapping import wrapped

WIDE = 180  # characters in a line when the output is no terminal
CURVE_WIDTH = 100  # characters; a wider picture shows no further detail


class Output(Console):
    """Standard output or, with ``stderr=True``, standard error.

    Names in results, model files and messages of workers can hold any characters, and a terminal obeys some of them. Here they are
    printed as escapes, wherever they come from, and ``:name:`` stays as it is. Such a text is put into markup with ``text.escape``.
    """

    def __init__(self, **settings: Any) -> None:  # settings: those of rich's Console
        super().__init__(**{"highlight": False, "emoji": False, **settings})

    def print(self, *objects: Any, **settings: Any) -> None:  # as rich's Console has them
        """Print as rich does. Only a terminal breaks sentences into lines. A text without markup is a text from elsewhere."""
        if settings.get("markup") is False:
            objects = tuple(quoted(each) if isinstance(each, str) else each for each in objects)
        if objects and all(isinstance(each, (str, Text)) for each in objects):
            markup = settings.get("markup") is not False
            parts = [self.render_str(each, markup=markup) if isinstance(each, str) else each for each in objects]
            objects, settings = (self.broken(Text(" ").join(parts)),), {**settings, "soft_wrap": True}
        super().print(*objects, **settings)

    def broken(self, text: Text) -> Text:
        """A text in the lines in which it is shown: those of a terminal, and its own elsewhere."""
        return wrapped(text, self.width) if self.is_terminal else text

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(printable(text), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text == "\n":
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def console() -> Console:
    """Standard output. When it is no terminal, tables have no colours, and are WIDE unless COLUMNS says otherwise."""
    plain = Output()
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdigit() and int(columns) else WIDE
    return plain if plain.is_terminal else Output(width=width, color_system=None)


def render(
    result: Result,
    console: Console,
    quiet: bool = False,
    file: str | None = None,
    by_layer: bool = False,
    details: bool = False,
) -> None:
    """Print a result.

    quiet: print the last line alone.
    file: the path of the result file, for the last line.
    by_layer: also print every layer, or every node of a model file.
    details: also print times and memory in detail, the loss curves, and every sentence on what was checked.
    """
    if not quiet:
        report(result, console, by_layer, details)
    if content.of_files(result):
        spent = f"{result.timeline.get('total_seconds', 0.0):.1f} s"
    else:
        spent = "" if quiet else where_time_went(result) if details else duration(result)
    parts = [content.tally(result), file or "", spent]
    summary_line = f"{escape(result.model)}: {escape('; '.join(filter(None, parts)))}"
    console.print(f"{coloured(content.conclusion(result))} {summary_line}")


def report(result: Result, console: Console, by_layer: bool, details: bool) -> None:
    """Print a result without its last line."""
    of_run = not content.of_files(result)
    for warning in warnings(result) if of_run else ():
        console.print(f"[yellow]{escape(warning)}[/]")
    console.print(content.summary(result))
    for table in details_tables(result) if details and of_run else ():
        console.print(table)
    for part in (*training_tables(result.rows), *decoding_tables(result.rows)):
        console.print(part)
    width = min(CURVE_WIDTH, console.width)
    plot = curves.in_terminal(result.rows, width, plain=not console.is_terminal) if details else ""
    if plot:
        console.print(Text.from_ansi(plot), soft_wrap=True)
    subjects: dict[tuple[str, str], list[str]] = {}
    for style, label, reason in content.reasons(result, by_layer):
        subjects.setdefault((style, reason), []).append(label)
    for (style, reason), labels in subjects.items():
        console.print(f"  [{style}]{escape(', '.join(labels))}[/]: {escape(reason)}")
    for row in result.rows:
        quantisation.render(row, console, everything=by_layer)
    plan.render(result, console, everything=by_layer)
    for row in result.rows if by_layer else ():
        layers.render(row, console, reasons=False)
    layers.legend(result.rows if by_layer else (), console)
    for line in content.footer(result) if details else content.brief(result):
        console.print(f"[dim]{escape(line)}[/]")
