"""What the first screen of a report says: a sentence for each row that is not right, with its place and its cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..results.records import FAILS, Result, Row
from ..results.verdicts import SEVERITY, Outcome, Verdict
from .content import of_files, verdict

MOST = 12  # sentences of a page; the others are counted
MOST_LAYERS = 20  # of the table of what a quantisation costs
BRIEF = 140  # characters of the clauses of a cause beside its first one
LONGEST = 300  # characters of a cause; the reasons below have all of it
RANKS = (
    Verdict.INVALID,
    Verdict.DIFFERENT,
    Verdict.UNTESTED,
    Verdict.DRIFT,
)  # before these come rows without a verdict


@dataclass(frozen=True)
class Headline:
    """A sentence about rows with the same finding.

    names: of the rows. says: what is wrong, such as "is DIFFERENT". verdict: it or the status, for its colour.
    cause: where and why; "" where nothing is known.
    """

    names: tuple[str, ...]
    says: str
    verdict: str
    cause: str


def headlines(result: Result) -> list[Headline]:
    """The sentences about the rows that are not right, the worst first, and about conditions that do not hold."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in worst_first(result).rows:
        for finding in _of_row(row):
            found.setdefault(finding, []).append(_name(result, row))
    said = [Headline(tuple(names), *finding) for finding, names in found.items()]
    if not said and result.verdict != Outcome.PASS:
        nothing = [] if result.rows else ["There are no rows: nothing was compared."]
        cause = _shortened("; ".join([*nothing, *result.notes]))
        said.append(Headline((), f"The verdict is {result.verdict}", result.verdict, cause))
    return said


def worst_first(result: Result) -> Result:
    """The result with its worst rows first, and otherwise in their order."""
    return replace(result, rows=tuple(sorted(result.rows, key=_rank)))


def in_order(results: Sequence[Result]) -> list[Result]:
    """Several results, the worst first: then those that pass with warnings."""
    return sorted(results, key=lambda each: (-SEVERITY.index(each.verdict), -each.warnings))


def of_several(results: Sequence[Result]) -> dict[Headline, list[int]]:
    """The sentences about all of these results, each with the numbers of those that it is about, counted from 1."""
    found: dict[Headline, list[int]] = {}
    for number, result in enumerate(results, 1):
        for each in headlines(result):
            found.setdefault(each, []).append(number)
    return found


def rest(result: Result) -> str:
    """A sentence about the rows that are right; "" when there are none."""
    if not result.rows:
        return ""
    right = sum(row.status == "ok" and not list(_of_row(row)) for row in result.rows)
    what = (
        "answer" if of_files(result) else "row" if len(result.tasks) > 1 or result.settings.other_sizes else "subject"
    )
    if right < len(result.rows):
        others = f"{right} {what}s are" if right > 1 else f"{what} is"
        return f"The other {others} EQUAL." if right else ""
    subject = f"All {right} {what}s are" if right > 1 else f"The only {what} is"
    precisions = "" if not any(row.at_precision for row in result.rows) else " to the precision of the file"
    return f"{subject} EQUAL: nothing differs by more than rounding{precisions}."


def _rank(row: Row) -> int:
    """0 for the worst."""
    if row.misses_gate or row.outcome in RANKS[:2]:
        return 0
    return 1 if row.status != "ok" or row.error is None else 2 + RANKS.index(row.outcome) if row.outcome in RANKS else 9


def _name(result: Result, row: Row) -> str:
    """The name of a row among those of its result."""
    return f"{row.subject}, {row.task}" if len(result.tasks) > 1 else row.subject


def _of_row(row: Row) -> Iterator[tuple[str, str, str]]:
    """(what is wrong, its verdict, the cause) of a row that is not right."""
    if row.misses_gate:
        conditions = sorted(row.gate.split("; "), key=lambda each: FAILS not in each)  # what does not hold first
        yield "misses its condition", "FAIL", "; ".join(conditions)
    elif row.accepted and row.outcome not in (Verdict.IDENTICAL, Verdict.EQUAL):
        yield f"is {row.outcome}, and is accepted", Verdict.DRIFT, row.gate
    elif row.error is not None and row.error.verdict > Verdict.EQUAL:
        yield f"is {verdict(row)}", row.error.verdict, _cause(row)
    elif row.error is None:
        says = "has no verdict" if row.status == "ok" else row.status
        yield says, row.status, _shortened(row.reason or "")
    elif row.status != "ok":
        yield f"is {row.outcome}, and ended early", row.status, _shortened(row.reason or "")


def _cause(row: Row) -> str:
    """The largest fault of a row with a verdict, the second one where it is told as briefly, and how many more there are."""
    error = row.error
    assert error is not None
    check = row.training.first if row.training is not None else None
    causes = error.causes() or ([f"{check.label}: {check.says}"] if check is not None else [])
    faults = error.layers.faults if error.layers is not None else ()
    if len(faults) > 1 and causes and causes[0] == faults[0].says:
        return _of_faults([each.says for each in faults])
    first, *others = causes[0].split("; ") if causes else [""]
    for clause in others:
        if len(first) + len(clause) > BRIEF:
            break
        first += f"; {clause}"
    return _shortened(first)


def _of_faults(faults: Sequence[str]) -> str:
    """The first of several faults, the second one where there is room, and how many more there are."""
    shown = 2 if len(faults[0]) + len(faults[1]) <= LONGEST else 1
    more = len(faults) - shown
    rest = [f"and {more} more fault{'' if more == 1 else 's'}"] if more else []
    return "; ".join([*map(_shortened, faults[:shown]), *rest])


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
