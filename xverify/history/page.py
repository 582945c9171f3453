"""A history as one HTML page that needs no network and no script."""

from __future__ import annotations

from ..report.html import template
from . import query, words
from .changes import RULE
from .drawing import HEIGHT, chart
from .records import BETTER, CHANGED, IMPROVED, OTHER, REGRESSED, SAME, WORSE, History
from .tables import Connection

MOST_DRAWN = 60  # series with a chart
MOST_LISTED = 1000  # series in the table
MOST_HEADLINES = 12  # series that are worse, on the first screen
MOST_CHANGES = 30  # of one series that are listed
# Standing of a series, or effect of a change -> its colour.
TONES = {REGRESSED: "bad", IMPROVED: "good", CHANGED: "warn", SAME: "good", WORSE: "bad", BETTER: "good", OTHER: "warn"}
WORDS = {REGRESSED: "regressed", IMPROVED: "improved", CHANGED: "changed", SAME: "no change"}


def page(history: History, connection: Connection) -> str:
    """The page. Series with changes are drawn first, then those without, up to MOST_DRAWN."""
    points = query.points(connection, [each.number for each in history.series[:MOST_DRAWN]])
    return template("history.html").render(
        history=history,
        listed=history.series[:MOST_LISTED],
        charts=[chart(each, points[each.number]) for each in history.series[:MOST_DRAWN]],
        height=HEIGHT,
        most_changes=MOST_CHANGES,
        most_headlines=MOST_HEADLINES,
        notes=list(words.skipped(history)),
        rule=RULE,
        tones=TONES,
        standings=WORDS,
        words=words,
    )
