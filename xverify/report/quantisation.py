"""Print which layers of a quantised file cost most."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import Console

from ..results.figures import Figures
from ..results.precision import LayerCost, Quantisation
from ..results.records import Row
from . import numbers
from .tables import Column, FirstThatFits, Titled, borderless, ending, narrower, table
from .text import escape

SHOWN = 5  # layers, unless all are asked for
NAMES, SHORTEST = (1000, 32), (24, 16, 8)  # characters of a name, while columns can be left out and then
DISPENSABLE = (
    "module",
    "range",
    "inputs dB",
    "weights dB",
    "own result dB",
    "kind",
)  # columns to leave out, in this order
COARSE = 4.0  # how many times larger than necessary a scale is printed in red


def render(row: Row, out: Console, everything: bool = False) -> None:
    """Print the ranking of the layers of a row, and its errors of quantisation and of the kernels. everything: print all layers."""
    quantisation = row.quantisation
    if quantisation is None:
        return
    out.print(f"\n[bold]{escape(row.subject)}[/]: what its quantisation costs, by layer")
    if quantisation.layers:
        out.print(FirstThatFits(_tables(quantisation.layers[: None if everything else SHOWN])))
    for line in lines(quantisation, everything):
        out.print(f"  {escape(line)}")


def _tables(layers: Sequence[LayerCost]) -> Iterator[Titled]:
    """Tables that need less and less width: with shorter titles, with the ends of long names, and with fewer columns."""
    for columns in narrower(COLUMNS, DISPENSABLE):
        for longest in NAMES:
            named = [
                replace(each, layer=ending(each.layer, longest), module=ending(each.module, longest)) for each in layers
            ]
            yield table(columns, named, made=borderless())
    for longest in SHORTEST:
        yield table(columns, [replace(each, layer=ending(each.layer, longest)) for each in layers], made=borderless())


def lines(quantisation: Quantisation, everything: bool) -> Iterator[str]:
    """The sentences below the ranking. everything: whether all layers are above."""
    left = len(quantisation.layers) - SHOWN
    if left > 0 and not everything:
        yield f"and {left} more layers; --nodes prints all"
    if quantisation.layers:
        yield f"layers: {len(quantisation.layers)} ranked, {quantisation.known} quantised; {quantisation.seconds:.1f} s"
    if quantisation.stopped:
        yield quantisation.stopped
    for text, figures in (("quantisation", quantisation.error), ("kernels", quantisation.kernel)):
        said = _sqnr(figures)
        if said:
            yield f"error of the {text} at the outputs: {said}"


def _sqnr(figures: Mapping[str, Figures]) -> str:
    known = {name: each.sqnr for name, each in figures.items() if each.sqnr is not None}
    return ", ".join(
        f"{name} {'exact' if math.isinf(value) else f'SQNR {value:.1f} dB'}" for name, value in known.items()
    )


def _share(layer: LayerCost) -> str:
    return numbers.ABSENT if layer.share is None else f"{layer.share:.1%}"


def _times(factor: float | None) -> str:
    if factor is None:
        return numbers.ABSENT
    text = f"× {factor:.3g}"
    return f"[red]{text}[/]" if factor >= COARSE else text


COLUMNS: tuple[Column[LayerCost], ...] = (
    Column("layer", lambda each: escape(each.layer), left=True),
    Column("kind", lambda each: escape(each.kind), left=True),
    Column("module", lambda each: escape(each.module) or numbers.ABSENT, left=True),
    Column("share", _share),
    Column("outputs dB", lambda each: numbers.decimals(each.sqnr, 1)),
    Column("own result dB", lambda each: numbers.decimals(each.local_sqnr, 1)),
    Column("weights dB", lambda each: numbers.decimals(each.weights_sqnr, 1)),
    Column("inputs dB", lambda each: numbers.decimals(each.inputs_sqnr, 1)),
    Column("scale", lambda each: _times(each.coarse)),
    Column("range", lambda each: _times(each.wide)),
)
