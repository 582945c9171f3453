"""What a report of a check of model files holds: its columns, and its sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..results.figures import Figures
from ..results.records import Result, Row
from ..results.verdicts import Verdict
from . import detection, numbers
from .cells import written
from .notes import calls, coverage, input_cases, speed_sentences, unreached
from .notes import notes as notes_of_run
from .rows import DETECTION, RATIO, fitting, speed_columns, verdict
from .tables import Column, FirstThatFits
from .text import escape

QUESTIONS = {"runtime": "computes what the file says", "conversion": "says what the reference says"}


def summary(result: Result) -> FirstThatFits:
    """The table of all rows, with as many columns as fit into the width of the console."""
    title = f"{result.model}, {input_cases(result)} ({result.inputs.kind})"
    return fitting(shown(result), DISPENSABLE, result, title)


def shown(result: Result) -> list[Column[Row]]:
    """The columns that this result has figures for."""
    return [column for column in (*COLUMNS, *speed_columns(result)) if column.title in ALWAYS or _known(result, column)]


def footer(result: Result) -> Iterator[str]:
    """The sentences under the table."""
    meant = [f"{name}: {says}" for name, says in QUESTIONS.items() if name in result.tasks]
    yield f"Answers: {'; '.join(meant)}"
    reference = result.reference
    yield f"Compared with: {reference.framework}; noise floor: {reference.floor}"
    yield from detection.sentences(result)
    for row in result.rows:
        if row.task == result.tasks[-1]:
            if row.precision is not None and row.precision.says != row.precision.name:
                yield f"Precision: {row.subject}: {row.precision.says}"
            yield from (f"Matched: {row.subject}: {pair}" for pair in row.matched)
        layers = row.error.layers if row.error else None
        if layers is not None and (layers.known or layers.stopped):
            yield f"Nodes: {row.subject}: {coverage(layers) if layers.known else layers.stopped}"
    yield from (f"Coverage: {says}" for says in unreached(result))
    yield from calls(result)
    if any(row.speed for row in result.rows):
        items = f", {result.settings.batch} images a call" if result.item == "image" else ""
        yield f"Timed: the first input case{items}"
        yield from speed_sentences(result)
    yield from notes(result)


def agreement(result: Result) -> Iterator[str]:
    """What top-1 and top-5 of a check mean: on how many inputs, and that they are no accuracy."""
    known = [row for row in result.rows if row.error is not None and _worst(row.figures, "top1") is not None]
    if known:
        counts = [row.batch * (row.error.compared // len(row.figures)) for row in known if row.error is not None]
        said = " or ".join(f"{count:,}" for count in sorted(set(counts)))
        yield (
            f"accuracy: top-1 and top-5 are agreement with the reference's best classes on {said} inputs "
            f"({result.inputs.kind or 'of unknown kind'})"
        )


def notes(result: Result) -> Iterator[str]:
    """The notes on files, and on the check."""
    for row in result.rows:
        if row.task == result.tasks[-1]:
            yield from (f"Note: {row.subject}: {note}" for note in row.notes)
    yield from notes_of_run(result)


def _known(result: Result, column: Column[Row]) -> bool:
    return any(column.cell(row) != numbers.ABSENT for row in result.rows)


def _worst(figures: Mapping[str, Figures], name: str) -> float | None:
    values: list[float | None] = [getattr(each, name) for each in figures.values()]
    known = [value for value in values if value is not None]
    return (min if FIGURES[name].best_is_large else max)(known, default=None)


def figure(figures: Mapping[str, Figures], name: str) -> str:
    """The cell of a figure, of the worst output. figures: output -> its figures."""
    value, places = _worst(figures, name), FIGURES[name].places
    if value is None:
        return numbers.ABSENT
    if not math.isfinite(value):
        return "-∞" if value < 0 else "∞"
    return numbers.error(value) if places is None else numbers.decimals(value, places)


def _column(name: str) -> Column[Row]:
    """The column of a figure."""
    return Column(FIGURES[name].title, lambda row: figure(row.figures, name))


def _ratio(row: Row) -> str:
    value = row.error.noise_ratio if row.error else None
    return numbers.ABSENT if value is None else numbers.ratio(value)


def _nodes(row: Row) -> str:
    layers = row.error.layers if row.error else None
    if layers is None or not layers.compared:
        return numbers.ABSENT
    wrong = sum(layer.verdict == Verdict.DIFFERENT for layer in layers.layers)
    judged = layers.compared - len(layers.untested)
    return f"[red]{wrong} of {layers.known} differ[/]" if wrong else f"{judged}/{layers.known}"


def _precision(row: Row) -> str:
    return escape(row.precision.name) if row.precision is not None else numbers.ABSENT


@dataclass(frozen=True)
class Written:
    """How a figure is written. title: of its column. places: decimal places; None for two significant digits."""

    title: str
    best_is_large: bool
    places: int | None = None


FIGURES = {
    "max_abs": Written("max |Δ|", False),
    "sqnr": Written("SQNR dB", True, 1),
    "cosine": Written("cosine", True, 6),
    "top1": Written("top-1", True, 3),
    "top5": Written("top-5", True, 3),
    "kl": Written("KL", False),
}
assert set(FIGURES) <= set(Figures.__dataclass_fields__)
COLUMNS: tuple[Column[Row], ...] = (
    Column("file", lambda row: escape(row.subject), left=True),
    Column("runtime", lambda row: escape(row.framework), left=True),
    Column("question", lambda row: escape(row.task), left=True),
    Column("precision", _precision, left=True),
    Column("relative error", written("error.rel_rms", numbers.error)),
    Column("residual / noise floor", _ratio, short="× floor"),
    *(_column(name) for name in FIGURES),
    Column("nodes", _nodes),
    Column("verdict", verdict, left=True),
    Column(DETECTION, written("error.detection_limit", numbers.limit), short="would show"),
)
ALWAYS = ("file", "runtime", "question", "verdict")
DISPENSABLE = (
    "elapsed s",
    "s/batch",
    "peak MiB",
    "cosine",
    "KL",
    DETECTION,
    "top-5",
    "nodes",
    RATIO,
    "runtime",
    "top-1",
    "SQNR dB",
    "max |Δ|",
    "speed",
)
