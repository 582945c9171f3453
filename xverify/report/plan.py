"""What layers in float32 cost and gain: the files of a plan with their errors and speeds, and the cost of each layer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import Console

from ..results.plan import Plan, PlannedFile, PlannedLayer
from ..results.records import Result
from . import numbers
from .check import FIGURES, figure
from .rows import RATE, rate, rate_unit
from .tables import Column, FirstThatFits, borderless, ending, narrower, table
from .text import escape

SHOWN, MOST = (
    5,
    15,
)  # layers, and layers where more of the most expensive ones stay in float32, unless all are asked for
NAMES = 40  # characters of the name of a layer in a narrow table
DISPENSABLE = ("kind", "MiB")  # columns to leave out, in this order


def title(plan: Plan) -> str:
    """The title of the table of files."""
    return f"Layers in float32, all others in {plan.precision}, for {plan.accept}"


def files(result: Result) -> list[Column[PlannedFile]]:
    """The columns of the table of files."""
    plan = result.plan
    assert plan is not None
    wanted = [name for name in FIGURES if re.search(rf"(?<!\w){name}\s*[<>]", plan.accept) or name == "sqnr"]
    found = [
        Column[PlannedFile]("layers in float32", lambda each: _share(plan, each), left=True),
        Column[PlannedFile]("MiB", lambda each: f"{each.bytes / 2**20:.3g}"),
        *(_figure(name) for name in wanted),
        Column[PlannedFile]("conditions", _conditions, left=True),
    ]
    if any(each.speed for each in plan.files):
        found.insert(-1, Column(RATE.format(rate=rate_unit(result.item)), _rate))
    return found


def layers(plan: Plan) -> list[Column[PlannedLayer]]:
    """The columns of the table of layers."""
    return [
        Column("layer", lambda each: escape(each.layer), left=True),
        Column("kind", lambda each: escape(each.kind), left=True),
        Column("outputs dB", lambda each: "overflow" if each.overflows else numbers.decimals(each.sqnr, 1)),
        Column("precision", lambda each: "float32" if each.kept else plan.precision, left=True),
    ]


def shown_layers(plan: Plan, everything: bool = False) -> tuple[PlannedLayer, ...]:
    """The layers of the table: the most expensive ones, and those that stay in float32. everything: all.

    There are none where no cost was measured.
    """
    if not any(each.sqnr is not None or each.overflows for each in plan.layers):
        return ()
    found = [each for place, each in enumerate(plan.layers) if everything or place < SHOWN or each.kept]
    return tuple(found if everything else found[:MOST])


def lines(plan: Plan, everything: bool = False) -> Iterator[str]:
    """The sentences below the tables. everything: whether all layers are above."""
    shown = shown_layers(plan, everything)
    left = [each for each in plan.layers if each not in shown] if shown else []
    if left:
        kept = sum(each.kept for each in left)
        yield f"and {len(left)} more layers, {kept} of them in float32; --nodes prints all, and the result file has them"
    yield f"{plan.tried} files were tried in {plan.seconds:.1f} s"
    if plan.stopped:
        yield plan.stopped


def render(result: Result, out: Console, everything: bool = False) -> None:
    """Print the files and the layers of a plan. everything: print all layers."""
    plan = result.plan
    if plan is None:
        return
    out.print(f"\n[bold]{escape(title(plan))}[/]")
    out.print(
        FirstThatFits(table(each, plan.files, made=borderless()) for each in narrower(files(result), DISPENSABLE))
    )
    chosen = shown_layers(plan, everything)
    if chosen:
        out.print("")
        named = Column[PlannedLayer]("layer", lambda each: escape(ending(each.layer, NAMES)), left=True)
        columns = (layers(plan), [named, *layers(plan)[1:]])
        out.print(FirstThatFits(table(each, chosen, made=borderless()) for each in columns))
    for line in lines(plan, everything):
        out.print(f"  {escape(line)}")


def _share(plan: Plan, file: PlannedFile) -> str:
    kept, known = len(file.kept), len(plan.layers)
    text = "none" if not kept else f"all {known}" if kept == known else f"{kept} of {known}"
    return f"[bold]{text}, written[/]" if file.chosen else text


def _figure(name: str) -> Column[PlannedFile]:
    return Column(FIGURES[name].title, lambda each: figure(each.figures, name))


def _conditions(file: PlannedFile) -> str:
    return "[red]do not hold[/]" if file.unmet else "[green]hold[/]"


def _rate(file: PlannedFile) -> str:
    if file.speed is None:
        return numbers.ABSENT
    return rate(file.speed, None if file.speed.counted else file.speed.not_counted or "")
