"""Print a result layer by layer: R (residual / noise floor) as a number and as a logarithmic bar."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..results.records import LayerError, Layers, Row
from ..results.verdicts import Verdict
from ..verdict import limits
from . import numbers
from .notes import coverage, few
from .tables import Column, FirstThatFits, borderless, ending
from .text import escape

LOW, HIGH, WIDTH = 0.1, 1e6, 35  # R at the two ends of the bar, and the number of characters between them
NARROWER = (20, 12)  # numbers of characters of the bar in narrower terminals
DISPENSABLE = ("bits lost", "would show", "kind", "input R")  # columns to leave out, in this order
NAMES = (48, 36, 24, 16, 8)  # characters of a layer's name where it is too long for the terminal
MOST_NAMES = 6  # layers of one sentence that are named
LEGEND = (
    f"R: error / rounding of the layer, EQUAL up to {limits.EQUAL_R:g}; C: in its worst group, up to {limits.EQUAL_C:g}"
)
STYLES: dict[str, str] = {
    Verdict.EQUAL: "green",
    Verdict.DRIFT: "yellow",
    Verdict.DIFFERENT: "red",
    Verdict.UNTESTED: "yellow",
}


def bar(ratio: float | None, verdict: str, width: int = WIDTH) -> Text:
    """Draw R from 0.1 to 10⁶ on a logarithmic scale, with marks at the limits.

    ratio: R; None when it is infinite.
    width: number of characters.
    """
    cells = list(" " * width)
    for limit in (limits.EQUAL_R, limits.DRIFT_R):
        cells[_place(limit, width)] = "┊"
    length = width if ratio is None else _place(ratio, width)
    text = Text("━" * length, style=STYLES.get(verdict, "red"))
    text.append("".join(cells[length:]), style="dim")
    return text


def _place(ratio: float, width: int) -> int:
    if ratio <= LOW:
        return 0
    share = math.log(min(ratio, HIGH) / LOW) / math.log(HIGH / LOW)
    return min(width - 1, round(share * width))


def render(row: Row, out: Console, only_faults: bool = False, reasons: bool = True) -> None:
    """Print the layers of one row.

    only_faults: leave out the layers that are EQUAL.
    reasons: also say why a row that was trained is not EQUAL.
    """
    layers = row.layers
    reason = (row.error.reason if row.error and (reasons or row.training is None) else None) or ""
    reason, lines = _told_once(layers, reason) if layers is not None else (reason, [])
    out.print(f"\n[bold]{escape(row.subject)}[/], {escape(row.task)}: {_headline(row, reason)}")
    if layers is None or not layers.layers:
        out.print("  no layer was checked, because the framework does not show its layers; its outputs were checked")
        return
    shown = [layer for layer in layers.layers if not only_faults or layer.verdict != Verdict.EQUAL]
    if shown:
        out.print(FirstThatFits(_tables(shown)))
    for line in _grouped(lines):
        out.print(f"  {escape(line)}")
    out.print(f"  layers: {escape(coverage(layers))}")
    for note in layers.notes:
        out.print(f"  note: {escape(note)}")


def legend(rows: Iterable[Row], out: Console) -> None:
    """Print what the columns mean, once for the tables of all these rows."""
    if any(row.layers is not None and row.layers.layers for row in rows):
        out.print(LEGEND)


def told(row: Row) -> bool:
    """Whether ``render`` says why the row is not EQUAL."""
    return row.error is None or row.reason is None


def _told_once(layers: Layers, reason: str) -> tuple[str, list[tuple[str, str]]]:
    """The reason for the heading, and (layer, sentence) for below the table. What one of them says the other leaves out."""
    every = [line for layer in layers.layers for line in _lines(layer)]
    clauses = {": ".join(filter(None, line)) for line in every}
    rest, told = reason, set[str]()
    for fault in layers.faults:
        if fault.says in reason:
            told.add(fault.clause)
            rest = rest.replace(fault.says, "") if fault.clause in clauses else rest
    if not rest.strip("; "):
        return "", every
    return reason, [line for layer in layers.layers if layers.describe(layer) not in told for line in _lines(layer)]


def _lines(layer: LayerError) -> Iterator[tuple[str, str]]:
    """(the layer, what is known about a fault of it or of the glue code before it). "" where the sentence names the layer."""
    if layer.verdict == Verdict.UNTESTED:
        yield "", layer.says()
        return
    if layer.explanation or layer.reason:
        yield layer.name, layer.explanation or layer.reason or ""
    if layer.verdict != Verdict.EQUAL and layer.faulty == "input" and layer.source:
        yield layer.name, f"is given a wrong input: the fault is {layer.place()}"
    elif layer.verdict != Verdict.EQUAL and layer.joined:
        yield layer.name, layer.joined
    if layer.glue:
        yield layer.name, layer.glue


def _grouped(lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The lines. A sentence that is true of several layers is told once, with their names."""
    layers: dict[str, list[str]] = {}
    for name, says in lines:
        layers.setdefault(says, []).append(name)
    for says, names in layers.items():
        if len(names) > 1:
            yield f"in {len(names)} layers ({few(names, MOST_NAMES)}): {says}"
        else:
            yield ": ".join(filter(None, (names[0], says)))


def _tables(layers: list[LayerError]) -> Iterator[Table]:
    """Tables that need less and less width: with shorter bars, without bars, without columns, and with the ends of long names."""
    for width in (WIDTH, *NARROWER, 0):
        yield _table(layers, COLUMNS, width)
    for left_out in range(1, len(DISPENSABLE) + 1):
        columns = [column for column in COLUMNS if column.title not in DISPENSABLE[:left_out]]
        yield _table(layers, columns, 0)
    for longest in NAMES:
        shortened = [replace(each, layer=ending(each.layer, longest)) for each in layers]
        yield _table(shortened, columns, 0)


def _table(layers: list[LayerError], columns: Sequence[Column[LayerError]], width: int) -> Table:
    """A row for each layer. width: characters of the bar; 0 for none."""
    table = borderless()
    for column in columns:
        table.add_column(column.title, justify="left" if column.left else "right", no_wrap=True)
    marks = f"R, marks at {limits.EQUAL_R:g} and {limits.DRIFT_R:g}"
    if width:
        table.add_column(marks if width >= len(marks) else marks.replace(" at ", "\nat "), no_wrap=True)
    table.add_column("", no_wrap=True)
    for layer in layers:
        table.add_row(
            *(column.cell(layer) for column in columns),
            *([bar(_worst(layer), layer.verdict, width)] if width else []),
            "" if layer.verdict == Verdict.EQUAL else f"[{STYLES.get(layer.verdict, 'red')}]{layer.verdict}[/]",
        )
    return table


COLUMNS: tuple[Column[LayerError], ...] = (
    Column("layer", lambda each: escape(each.layer) + (f" ×{each.calls}" if each.calls > 1 else ""), left=True),
    Column("kind", lambda each: escape(each.kind), left=True),
    Column("input R", lambda each: numbers.ABSENT if each.joined else numbers.ratio(each.input_ratio)),
    Column("R", lambda each: numbers.ratio(each.ratio)),
    Column("C", lambda each: numbers.ratio(each.channel_ratio)),
    Column("would show", lambda each: numbers.limit(each.detection_limit)),
    Column("bits lost", lambda each: _bits(each.rel_rms)),
)


def _headline(row: Row, reason: str) -> str:
    error = row.error
    if not error:
        return f"[red]{escape(row.status)}[/] {escape(row.reason or '')}"
    text = str(error.verdict)
    if error.noise_ratio is not None and math.isfinite(error.noise_ratio):
        text += f", ρ = {numbers.significant(error.noise_ratio, 2)} at the outputs"
    return text + (f"; {escape(reason)}" if reason else "")


def _worst(layer: LayerError) -> float | None:
    ratios = (layer.ratio, layer.input_ratio)
    return max(ratios) if all(map(math.isfinite, ratios)) else None


def _bits(relative: float | None) -> str:
    """The number of bits of float32 that an error of this relative size makes wrong."""
    if relative is None or not math.isfinite(relative):
        return numbers.ABSENT
    return numbers.decimals(max(0.0, math.log2(relative / limits.UNIT)), 1) if relative else "0"
