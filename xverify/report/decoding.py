"""The ways to compute the sequences of a decoder: a table for each row, and sentences on what was not tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.text import Text

from ..results.decoding import Decoding, DecodingCheck
from ..results.figures import shown_limit
from ..results.records import Row
from . import numbers
from .style import BROKEN, STYLES
from .tables import Column, table
from .text import escape, quoted

COLUMNS: tuple[Column[DecodingCheck], ...] = (
    Column("way to compute the sequences", lambda each: escape(each.name), left=True),
    Column("residual / noise floor", lambda each: _ratio(each, each.ratio)),
    Column("worst step", lambda each: _ratio(each, each.worst_ratio)),
    Column("detection limit", lambda each: _limit(each.detection_limit)),
    Column("same bits alone", lambda each: {True: "yes", False: "no"}.get(each.same_bits, numbers.ABSENT), left=True),  # type: ignore[arg-type]
    Column("verdict", lambda each: f"[{STYLES.get(each.verdict, BROKEN)}]{each.verdict}[/]", left=True),
)


def _ratio(check: DecodingCheck, ratio: float | None) -> str:
    """A ratio; a dash where the way has no values to compare, as freely chosen tokens."""
    return numbers.ABSENT if ratio is None and not check.verdict.fails else numbers.ratio(ratio)


def _limit(limit: float | None) -> str:
    return numbers.ABSENT if limit is None else shown_limit(limit)


def decoded(rows: Iterable[Row]) -> list[tuple[str, Decoding]]:
    """(subject, what was decoded) of the rows that were."""
    return [(row.subject, row.decoding) for row in rows if row.decoding is not None]


def title(subject: str, decoding: Decoding) -> str:
    """The title of the table of a subject."""
    chosen = decoding.length - decoding.prompt
    return (
        f"{subject}: {decoding.sequences} sequences of {decoding.length} tokens"
        f"{f', of which the reference chose the last {chosen}' if chosen else ''}; every position is compared with the "
        "reference's full pass in float64"
    )


def sentences(decoding: Decoding) -> Iterator[str]:
    """What differs in each way, with the ties of tokens, and what was not tried."""
    for says, names in _grouped((check.name, check.says) for check in decoding.ways if check.says):
        yield f"{names}: {says}"
    for why, names in _grouped(decoding.not_tried.items()):
        yield f"not tried: {names}: {why}"


def _grouped(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """(a sentence, the names of all ways that have it). pairs: (name of a way, its sentence)."""
    names: dict[str, list[str]] = {}
    for name, says in pairs:
        names.setdefault(says, []).append(name)
    for says, ways in names.items():
        yield says, ", ".join(ways)


def decoding_tables(rows: Iterable[Row]) -> Iterator[RenderableType]:
    """The tables of all rows, and the sentences below each."""
    for subject, decoding in decoded(rows):
        yield table(COLUMNS, decoding.ways, title(subject, decoding))
        for says in sentences(decoding):
            yield Text(f"  {quoted(says)}")
