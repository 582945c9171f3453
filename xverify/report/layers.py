"""Print a result layer by layer: R (residual / noise floor) as a number and as a logarithmic bar."""

from __future__ import annotations

import math

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..results.records import LayerError, Row
from ..results.verdicts import Verdict
from ..verdict import limits
from . import numbers
from .notes import coverage
from .tables import Column, borderless

LOW, HIGH, WIDTH = 0.1, 1e6, 35  # R at the two ends of the bar, and the number of characters between them
STYLES: dict[str, str] = {Verdict.EQUAL: "green", Verdict.DRIFT: "yellow", Verdict.DIFFERENT: "red"}


def bar(ratio: float | None, verdict: str) -> Text:
    """Draw R from 0.1 to 10⁶ on a logarithmic scale, with marks at the limits. ratio: R; None when it is infinite."""
    cells = list(" " * WIDTH)
    for limit in (limits.EQUAL_R, limits.DRIFT_R):
        cells[_place(limit)] = "┊"
    length = WIDTH if ratio is None else _place(ratio)
    text = Text("━" * length, style=STYLES.get(verdict, "red"))
    text.append("".join(cells[length:]), style="dim")
    return text


def _place(ratio: float) -> int:
    if ratio <= LOW:
        return 0
    share = math.log(min(ratio, HIGH) / LOW) / math.log(HIGH / LOW)
    return min(WIDTH - 1, round(share * WIDTH))


def render(row: Row, out: Console, only_faults: bool = False) -> None:
    """Print the layers of one row.

    only_faults: leave out the layers that are EQUAL.
    """
    layers = row.training.layers if row.training else row.error.layers if row.error else None
    out.print(f"\n[bold]{escape(row.subject)}[/], {escape(row.task)}: {_headline(row)}")
    if layers is None or not layers.layers:
        out.print("  no layer was checked, because the framework does not show its layers; its outputs were checked")
        return
    shown = [layer for layer in layers.layers if not only_faults or layer.verdict != Verdict.EQUAL]
    if shown:
        out.print(_table(shown))
    for layer in layers.layers:
        if layer.explanation or layer.reason:
            out.print(f"  {escape(layer.layer)}: {escape(layer.explanation or layer.reason or '')}")
        if layer.verdict != Verdict.EQUAL and layer.faulty == "input" and layer.source:
            out.print(f"  {escape(layer.layer)}: is given a wrong input: the fault is {escape(layer.place())}")
        elif layer.verdict != Verdict.EQUAL and layer.joined:
            out.print(f"  {escape(layer.layer)}: {escape(layer.joined)}")
        if layer.glue:
            out.print(f"  {escape(layer.layer)}: {escape(layer.glue)}")
    out.print(f"  layers: {escape(coverage(layers))}")
    for note in layers.notes:
        out.print(f"  note: {escape(note)}")


def _table(layers: list[LayerError]) -> Table:
    table = borderless()
    for column in COLUMNS:
        table.add_column(column.title, justify="left" if column.left else "right", no_wrap=True)
    table.add_column(f"R, marks at {limits.EQUAL_R:g} and {limits.DRIFT_R:g}")
    table.add_column("")
    for layer in layers:
        table.add_row(
            *(column.cell(layer) for column in COLUMNS),
            bar(_worst(layer), layer.verdict),
            "" if layer.verdict == Verdict.EQUAL else f"[{STYLES.get(layer.verdict, 'red')}]{layer.verdict}[/]",
        )
    return table


COLUMNS: tuple[Column[LayerError], ...] = (
    Column("layer", lambda each: escape(each.layer) + (f" ×{each.calls}" if each.calls > 1 else ""), left=True),
    Column("kind", lambda each: escape(each.kind), left=True),
    Column("input R", lambda each: numbers.ABSENT if each.joined else numbers.layer_ratio(each.input_ratio)),
    Column("R", lambda each: numbers.layer_ratio(each.ratio)),
    Column("C", lambda each: numbers.layer_ratio(each.channel_ratio)),
    Column("bits lost", lambda each: _bits(each.rel_rms)),
)


def _headline(row: Row) -> str:
    error = row.error
    if not error:
        return f"[red]{escape(row.status)}[/] {escape(row.reason or '')}"
    text = str(error.verdict)
    if error.noise_ratio is not None and math.isfinite(error.noise_ratio):
        text += f", ρ = {numbers.significant(error.noise_ratio, 2)} at the outputs"
    return text + (f"; {escape(error.reason)}" if error.reason else "")


def _worst(layer: LayerError) -> float | None:
    ratios = (layer.ratio, layer.input_ratio)
    return max(ratios) if all(map(math.isfinite, ratios)) else None


def _bits(relative: float | None) -> str:
    """The number of bits of float32 that an error of this relative size makes wrong."""
    if relative is None or not math.isfinite(relative):
        return numbers.ABSENT
    return numbers.decimals(max(0.0, math.log2(relative / limits.UNIT)), 1) if relative else "0"
