"""What a report of a check of model files holds: its columns, and its sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..results.figures import Figures
from ..results.records import Result, Row
from ..results.verdicts import Verdict
from . import detection, numbers
from .cells import written
from .notes import coverage, speed_sentences
from .notes import notes as notes_of_run
from .rows import DETECTION, RATIO, fitting, speed_columns, verdict
from .tables import Column, FirstThatFits
from .text import escape

QUESTIONS = {"runtime": "computes what the file says", "conversion": "says what the reference says"}


def summary(result: Result) -> FirstThatFits:
    """The table of all rows, with as many columns as fit into the width of the console."""
    title = f"{result.model}, {result.inputs.cases} input cases ({result.inputs.kind})"
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
    if any(row.speed for row in result.rows):
        items = f", {result.settings.batch} images a call" if result.item == "image" else ""
        yield f"Timed: the first input case{items}"
        yield from speed_sentences(result)
    yield from notes(result)


def agreement(result: Result) -> Iterator[str]:
    """What top-1 and top-5 of a check mean: on how many inputs, and that they are no accuracy."""
    known = [row for row in result.rows if row.error is not None and _worst(row, "top1", True) is not None]
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


def _worst(row: Row, name: str, best_is_large: bool) -> float | None:
    values: list[float | None] = [getattr(figures, name) for figures in row.figures.values()]
    known = [value for value in values if value is not None]
    if not known:
        return None
    return min(known) if best_is_large else max(known)


def _figure(name: str, best_is_large: bool, places: int | None) -> Column[Row]:
    """The column of one figure, of the worst output."""

    def cell(row: Row) -> str:
        value = _worst(row, name, best_is_large)
        if value is None:
            return numbers.ABSENT
        if not math.isfinite(value):
            return "-∞" if value < 0 else "∞"
        return numbers.error(value) if places is None else numbers.decimals(value, places)

    return Column(TITLES.get(name, name), cell)


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


TITLES = {"sqnr": "SQNR dB", "max_abs": "max |Δ|", "kl": "KL", "top1": "top-1", "top5": "top-5"}
assert set(TITLES) <= set(Figures.__dataclass_fields__)
COLUMNS: tuple[Column[Row], ...] = (
    Column("file", lambda row: escape(row.subject), left=True),
    Column("runtime", lambda row: escape(row.framework), left=True),
    Column("question", lambda row: escape(row.task), left=True),
    Column("precision", _precision, left=True),
    Column("relative error", written("error.rel_rms", numbers.error)),
    Column("residual / noise floor", _ratio, short="× floor"),
    _figure("max_abs", best_is_large=False, places=None),
    _figure("sqnr", best_is_large=True, places=1),
    _figure("cosine", best_is_large=True, places=6),
    _figure("top1", best_is_large=True, places=3),
    _figure("top5", best_is_large=True, places=3),
    _figure("kl", best_is_large=False, places=None),
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
