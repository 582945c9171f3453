"""Print a result: its tables, the sentences under them, and the verdict as the last line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

from ..errors import printable
from ..results.records import Result, Row
from ..results.verdicts import Verdict
from . import curves, detection, layers, limits
from .notes import duration, footer, notes, tally, warnings, where_time_went
from .rows import details as details_tables
from .rows import summary
from .style import STYLES, Reason, coloured
from .training import training_tables

WIDE = 180  # characters in a line when the output is no terminal
CURVE_WIDTH = 100  # characters; a wider picture shows no further detail


class Output(Console):
    """Standard output or, with ``stderr=True``, standard error.

    Names in results, model files and messages of workers can hold any characters, and a terminal obeys some of them. Here they are
    printed as escapes, wherever they come from, and ``:name:`` stays as it is.
    """

    def __init__(self, **settings: Any) -> None:  # settings: those of rich's Console
        super().__init__(**{"highlight": False, "emoji": False, **settings})

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(printable(text), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text == "\n":
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def console() -> Console:
    """Standard output. When it is no terminal, lines are WIDE and have no colours."""
    plain = Output()
    return plain if plain.is_terminal else Output(width=WIDE, color_system=None)


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
    by_layer: also print every layer.
    details: also print times and memory in detail, the loss curves, and every sentence on what was checked.
    """
    if not quiet:
        _print_report(result, console, by_layer, details)
    spent = "" if quiet else where_time_went(result) if details else duration(result)
    parts = [tally(result.rows, "subjects"), file or "", spent]
    summary_line = f"{escape(result.model)}: {escape('; '.join(filter(None, parts)))}"
    tell(console, f"{coloured(result.verdict)} {summary_line}")


def _print_report(result: Result, console: Console, by_layer: bool, details: bool) -> None:
    for warning in warnings(result):
        tell(console, f"[yellow]{escape(warning)}[/]")
    console.print(summary(result))
    for shown in details_tables(result) if details else ():
        console.print(shown)
    for part in training_tables(result.rows):
        tell(console, part) if isinstance(part, Text) else console.print(part)
    plot = (
        curves.in_terminal(result.rows, min(CURVE_WIDTH, console.width), plain=not console.is_terminal)
        if details
        else ""
    )
    if plot:
        console.print(Text.from_ansi(plot), soft_wrap=True)
    for style, label, reason in reasons(result, by_layer):
        tell(console, f"  [{style}]{escape(label)}[/]: {escape(reason)}")
    if by_layer:
        for row in result.rows:
            layers.render(row, console, reasons=False)
    found = (*detection.sentences(result), *footer(result)) if details else (limits.of_run(result), *notes(result))
    for line in found:
        tell(console, f"[dim]{escape(line)}[/]")


def tell(console: Console, text: str | Text) -> None:
    """Print a sentence. A terminal breaks it between words; elsewhere it is one line.

    text: a text, or rich's markup.
    """
    console.print(text, soft_wrap=not console.is_terminal)


def reasons(result: Result, by_layer: bool = False) -> Iterator[Reason]:
    """Why each row is not EQUAL, or why its speed has no verdict.

    by_layer: leave out what is told with the layers of the row.
    """
    for of_task in result.by_task():
        task = f", {of_task.tasks[0]}" if len(result.tasks) > 1 else ""
        for row in of_task.rows:
            for style, text in _reasons(row, of_task.noise.refusal, by_layer):
                yield Reason(style, row.subject + task, text)


def _reasons(row: Row, too_noisy: str | None, by_layer: bool) -> Iterator[tuple[str, str]]:
    """Why the row is not EQUAL, or why its speed has no verdict: a style and a sentence.

    too_noisy: why the machine is too noisy; this is printed once for all rows, and not here.
    """
    causes = row.error.causes(where="; --layers shows all") if row.error and row.training is None else []
    reasons = [row.reason] if row.reason else causes
    drifts = row.error is not None and row.error.verdict == Verdict.DRIFT
    equal = row.error is not None and row.error.verdict <= Verdict.EQUAL and row.reason is None
    if not (by_layer and layers.told(row)):
        yield from (("dim" if equal else "yellow" if drifts else "red", reason) for reason in reasons)
    yield from ((STYLES[Verdict.UNTESTED], says) for says in detection.undetermined(row))
    why = speed_reason(row, too_noisy)
    if why is not None and (drifts or equal or not reasons):
        yield why


def speed_reason(row: Row, too_noisy: str | None) -> tuple[str, str] | None:
    """Why the speed of a row is REFUSED or AMBIGUOUS: a style and a sentence; None when no reason is needed.

    too_noisy: why the machine is too noisy; this is printed once for all rows, and not here.
    """
    speed = row.speed
    if speed is None or speed.reason is None or speed.reason == too_noisy:
        return None
    return (STYLES[speed.verdict], speed.reason) if speed.verdict in ("REFUSED", "AMBIGUOUS") else None
