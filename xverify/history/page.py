"""A history as one HTML page that needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..report.html import template
from . import query, words
from .changes import RULE
from .drawing import Chart, chart, tone
from .records import CHANGED, IMPROVED, REGRESSED, SAME, Change, History, Series
from .tables import Connection

MOST_DRAWN = 60  # series with a chart
MOST_LISTED = 1000  # series in the table
MOST_CHANGES = 30  # of one series that are listed
TONES = {REGRESSED: "bad", IMPROVED: "good", CHANGED: "warn"}
WORDS = {REGRESSED: "regressed", IMPROVED: "improved", CHANGED: "changed", SAME: "no change"}


@dataclass(frozen=True)
class Said:
    """A change in words. when: with "the newest result" where it is that."""

    what: str
    effect: str
    when: str
    path: str
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """One series. place: the name to which the table links; "" when the series has no chart."""

    name: str
    facts: str
    place: str
    standing: str
    tone: str
    outcome: str
    outcome_tone: str
    count: int
    last: str
    changes: tuple[Said, ...]
    more: int
    chart: Chart | None


def page(found: History, connection: Connection) -> str:
    """The page. Series with changes are drawn first, then those without, up to MOST_DRAWN."""
    drawn = found.series[:MOST_DRAWN]
    points = query.points(connection, [each.number for each in drawn])
    sections = [
        _section(number, each, chart(each, points[each.number]) if number <= len(drawn) else None)
        for number, each in enumerate(found.series[:MOST_LISTED], 1)
    ]
    outcome = words.outcome(found)
    return template("history.html").render(
        word=words.word(found),
        verdict=outcome,
        conclusion=words.conclusion(found),
        history=found,
        sections=sections,
        drawn=[each for each in sections if each.chart is not None],
        unlisted=len(found.series) - len(sections),
        same=len(found.of(SAME)),
        notes=list(words.skipped(found)),
        rule=RULE,
    )


def _section(number: int, series: Series, drawn: Chart | None) -> Section:
    return Section(
        words.name(series), words.facts(series.key), f"series{number}" if drawn is not None else "",
        WORDS[series.standing], TONES.get(series.standing, "good"), series.outcome, tone(series.outcome), series.count,
        words.moment(series.last), tuple(_said(series.changes[:MOST_CHANGES])),
        max(0, len(series.changes) - MOST_CHANGES), drawn,
    )  # fmt: skip


def _said(changes: Sequence[Change]) -> list[Said]:
    return [
        Said(
            words.what(each), each.effect, words.moment(each.created) + (", the newest result" if each.newest else ""),
            each.path, tuple(words.remarks(each)),
        )
        for each in changes
    ]  # fmt: skip
