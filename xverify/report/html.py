"""Results as one HTML page that needs no network and no script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..results.records import Result, Row
from ..results.verdicts import Outcome, SpeedVerdict, Verdict
from . import charts, content, training
from .conditions import command, machine, untested
from .text import Piece, one_line, pieces

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).parent / "templates"
LONGEST_NAME = 120  # characters
DRAWING = re.compile(r"[MLHVZhlm0-9. -]*")  # what the path of a drawing consists of
# A verdict or status -> its colour; all others are bad.
TONES: dict[str, str] = {
    **dict.fromkeys((Outcome.PASS, Verdict.IDENTICAL, Verdict.EQUAL, SpeedVerdict.FASTER), "good"),
    **dict.fromkeys((Outcome.INCONCLUSIVE, Verdict.DRIFT, Verdict.UNTESTED, "no verdict", "-"), "warn"),
}
TITLES = ("subject", "task", "file", "question", "verdict")  # of columns that a card shows elsewhere


@dataclass(frozen=True)
class Fact:
    """One line of a card: the title of a column, and the cell of the row."""

    title: str
    cell: tuple[Piece, ...]


@dataclass(frozen=True)
class Card:
    """One row. number: by which charts name it."""

    number: int
    subject: str
    verdict: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Explained:
    """The layers of a row: their chart, and the index, name and explanation of those that are not EQUAL."""

    number: int
    strip: charts.Strip
    says: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True)
class Part:
    """One task of a result."""

    tasks: str
    cards: tuple[Card, ...]
    paired: charts.Paired | None
    memory: tuple[charts.Bar, ...]
    layers: tuple[Explained, ...]
    samples: tuple[charts.Samples, ...]
    losses: charts.Losses | None

    @property
    def timed(self) -> bool:
        """Whether a row of it was timed."""
        return bool(self.samples)


@dataclass(frozen=True)
class Section:
    """One result. head, left, body: its table. checks: the table of training-parity checks."""

    result: Result
    tally: str
    reasons: tuple[content.Reason, ...]
    parts: tuple[Part, ...]
    head: tuple[str, ...]
    left: tuple[bool, ...]
    body: tuple[tuple[tuple[Piece, ...], ...], ...]
    checks: tuple[str, ...]
    checked: tuple[tuple[str, tuple[str, ...]], ...]
    sentences: tuple[str, ...]
    untested: tuple[str, ...]
    footer: tuple[str, ...]
    machine: tuple[tuple[str, str], ...]
    command: str


def page(results: Sequence[Result]) -> str:
    """The page of one or several results."""
    subjects = tuple(dict.fromkeys(row.subject for result in results for row in result.rows))
    return template("page.html").render(
        results=results,
        labels=[content.label(result) for result in results],
        sections=[_section(result) for result in results],
        verdict=content.worst(results),
        subjects=subjects,
        matrix=[[_verdicts(result, subject) for subject in subjects] for result in results],
    )


def framed(results: Sequence[Result]) -> str:
    """The page in a frame, for a notebook."""
    return f'<iframe title="xverify" width="100%" height="700" sandbox srcdoc="{escape(page(results))}"></iframe>'


@cache
def template(name: str) -> Template:
    """A template of a page, which escapes every text that it prints."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, finalize=_shown,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters.update(tone=_tone, drawing=_drawing, name=_name)
    return made.get_template(name)


def _shown(value: Any) -> Any:  # Any: whatever a template prints
    """Every text that a template prints: in one line, without control characters. The template then escapes it."""
    if isinstance(value, float):
        return f"{value:.1f}"
    return one_line(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _name(text: str) -> str:
    """The name of a model, a subject or a layer."""
    return one_line(text, LONGEST_NAME).strip() or "(no name)"


def _tone(verdict: str) -> str:
    """The colour of a verdict, which may hold a precision: EQUAL at float16."""
    return TONES.get(verdict.partition(" at ")[0], "bad")


def _drawing(path: str) -> object:
    """The path of a drawing, which may be long."""
    from markupsafe import Markup

    if not DRAWING.fullmatch(path):
        raise ValueError(f"no path of a drawing: {path[:80]!r}")
    return Markup(path)


def _verdicts(result: Result, subject: str) -> str:
    """The verdicts of a subject, one for each task."""
    return ", ".join(dict.fromkeys(content.verdict(row) for row in result.rows if row.subject == subject))


def _section(result: Result) -> Section:
    columns = content.columns(result)
    names, cells = training.checks_of(result.rows)
    return Section(
        result,
        content.tally(result),
        tuple(content.reasons(result)),
        tuple(_part(part) for part in result.by_task()),
        tuple(column.title for column in columns),
        tuple(column.left for column in columns),
        tuple(tuple(pieces(column.cell(row)) for column in columns) for row in result.rows),
        tuple(names),
        tuple(
            (subject, tuple(of[name].plain if name in of else "-" for name in names)) for subject, of in cells.items()
        ),
        tuple(text.plain for text in training.sentences(result.rows)),
        tuple(untested(result)),
        tuple(content.footer(result)),
        tuple(machine(result)),
        command(result),
    )


def _part(result: Result) -> Part:
    rows = result.rows
    strips = [(number, row, charts.strip(row)) for number, row in enumerate(rows, 1)]
    timed = [charts.samples(row) for row in rows]
    return Part(
        ", ".join(result.tasks),
        tuple(_card(result, number, row) for number, row in enumerate(rows, 1)),
        charts.paired(result),
        charts.memory(rows),
        tuple(_explained(number, row, strip) for number, row, strip in strips if strip is not None),
        tuple(each for each in timed if each is not None),
        charts.losses(rows),
    )


def _card(result: Result, number: int, row: Row) -> Card:
    facts = [
        Fact(column.title, pieces(cell))
        for column in content.columns(result)
        if column.title not in TITLES and (cell := column.cell(row)) != "-"
    ]
    name = row.subject + (f", {row.task}" if len(result.tasks) > 1 else "")
    return Card(number, name, content.verdict(row), tuple(facts))


def _explained(number: int, row: Row, strip: charts.Strip) -> Explained:
    found = row.layers
    assert found is not None  # there is a strip
    said = ((each.index, each.name, found.describe(found.layers[each.index])) for each in strip.faults)
    return Explained(number, strip, tuple(said))
