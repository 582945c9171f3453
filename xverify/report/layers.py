"""The view of a result layer by layer: the residual over its rounding floor, on a logarithmic bar."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..verdict import limits as rule

LOW, HIGH, WIDTH = 0.1, 1e6, 35
COLOURS = {"EQUAL": "green", "DRIFT": "yellow", "DIFFERENT": "red"}


def bar(ratio: float | None, verdict: str) -> Text:
    """R from 0.1 to 10⁶ on a logarithmic scale, with marks at the limits. None is more than any number."""
    cells = list(" " * WIDTH)
    for limit in (rule.EQUAL_R, rule.DRIFT_R):
        cells[_place(limit)] = "┊"
    length = WIDTH if ratio is None else _place(ratio)
    text = Text("━" * length, style=COLOURS.get(verdict, "red"))
    text.append("".join(cells[length:]), style="dim")
    return text


def _place(ratio: float) -> int:
    if ratio <= LOW:
        return 0
    share = math.log(min(ratio, HIGH) / LOW) / math.log(HIGH / LOW)
    return min(WIDTH - 1, round(share * WIDTH))


def render(row: Mapping[str, Any], out: Console, only_faults: bool = False) -> None:
    """Print the layers of one row of a result file. only_faults: leave out what is EQUAL."""
    error = row.get("error")
    learnt = row.get("training")
    layers = learnt.get("layers") if learnt else error.get("layers") if error else None
    out.print(f"\n[bold]{escape(row['subject'])}[/], {row['task']}: {_headline(row)}")
    if not layers or not layers["layers"]:
        out.print("  no layer was compared: the framework shows none of its own; outputs were")
        return
    shown = [layer for layer in layers["layers"] if not only_faults or layer["verdict"] != "EQUAL"]
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for column, justify in (
        ("layer", "left"),
        ("kind", "left"),
        ("given", "right"),
        ("R", "right"),
        ("C", "right"),
        ("bits lost", "right"),
    ):
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column(f"R, marks at {rule.EQUAL_R:g} and {rule.DRIFT_R:g}")
    table.add_column("")
    for layer in shown:
        worst = (
            None
            if layer["ratio"] is None or layer["input_ratio"] is None
            else max(layer["ratio"], layer["input_ratio"])
        )
        table.add_row(
            escape(layer["layer"]) + (f" ×{layer['calls']}" if layer["calls"] > 1 else ""),
            layer["kind"],
            _number(layer["input_ratio"]),
            _number(layer["ratio"]),
            _number(layer["channel_ratio"]),
            _bits(layer["rel_rms"]),
            bar(worst, layer["verdict"]),
            "" if layer["verdict"] == "EQUAL" else f"[{COLOURS[layer['verdict']]}]{layer['verdict']}[/]",
        )
    if shown:
        out.print(table)
    for layer in layers["layers"]:
        if layer["explanation"] or layer["reason"]:
            out.print(f"  {escape(layer['layer'])}: {escape(layer['explanation'] or layer['reason'])}")
    out.print(f"  {coverage(layers)}")


def coverage(layers: Mapping[str, Any]) -> str:
    """What was compared, and what was not."""
    text = f"{layers['compared']} of {layers['known']} layers compared, captured from {layers['subject']}"
    if layers["missing"]:
        names = ", ".join(layers["missing"][:5]) + (", …" if len(layers["missing"]) > 5 else "")
        text += f"; not captured, so judged with the code between the others: {names}"
    if layers["matched"]:
        text += "; layers matched by order and shape: " + ", ".join(f"{a} = {b}" for a, b in layers["matched"].items())
    if layers["stopped"]:
        text += f"; {layers['stopped']}"
    return escape(text)


def _headline(row: Mapping[str, Any]) -> str:
    error = row.get("error")
    if not error:
        return f"[red]{row['status']}[/] {escape(row['reason'] or '')}"
    rho = error.get("noise_ratio")
    text = error["verdict"] + (f", ρ = {rho:.2g} at the outputs" if rho is not None else "")
    return text + (f"; {escape(error['reason'])}" if error["reason"] else "")


def _number(value: float | None) -> str:
    return "∞" if value is None else "0" if value == 0 else f"{value:.2g}" if value < 1000 else f"{value:,.0f}"


def _bits(relative: float | None) -> str:
    if relative is None:
        return "-"
    return f"{max(0.0, math.log2(relative / rule.UNIT)):.1f}" if relative else "0"
