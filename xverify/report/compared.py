"""A comparison of two results, in the terminal and in other formats."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rich.console import Console

from ..results.records import plain
from ..results.verdicts import Outcome, SpeedVerdict
from . import junit, markdown, numbers
from .csv import written
from .rows import not_counted
from .style import STYLES
from .tables import Column, table
from .text import escape

WORDS = {Outcome.FAIL: "WORSE", Outcome.INCONCLUSIVE: "INCONCLUSIVE", Outcome.PASS: "NOT WORSE"}


@dataclass(frozen=True)
class Comparison:
    """One subject in both results.

    ratio: new time / old time and the two ends of its 95% interval; None when it is unknown.
    speed: the verdict on this ratio, or "-".
    reason: why there is no definite verdict on the speed; None when there is one.
    outputs: the verdicts on the outputs, as text.
    verdicts, errors: the old and the new verdict or status, and relative error; None where there is none.
    worse: whether the subject is slower, or less equal.
    decided: whether the verdicts on speed and outputs are both known.
    """

    subject: str
    ratio: tuple[float, float, float] | None
    speed: str
    reason: str | None
    outputs: str
    verdicts: tuple[str | None, str | None]
    errors: tuple[float | None, float | None]
    worse: bool
    decided: bool


@dataclass(frozen=True)
class Comparisons:
    """All subjects of two results.

    model: name of the model. old, new: names of the result files.
    differences: how the conditions of both runs differ.
    timed: whether speeds were compared.
    """

    model: str
    old: str
    new: str
    differences: tuple[str, ...]
    rows: tuple[Comparison, ...]
    timed: bool = True

    @property
    def outcome(self) -> Outcome:
        """FAIL when a row became worse, INCONCLUSIVE when one is undecided or there is none, otherwise PASS."""
        if any(each.worse for each in self.rows):
            return Outcome.FAIL
        decided = self.rows and all(each.decided for each in self.rows)
        return Outcome.PASS if decided else Outcome.INCONCLUSIVE

    @property
    def conclusion(self) -> str:
        """The subjects that decided the outcome, or the number of all."""
        if self.outcome == Outcome.PASS:
            return f"{len(self.rows)} subjects"
        failed = self.outcome == Outcome.FAIL
        return (
            ", ".join(each.subject for each in self.rows if (each.worse if failed else not each.decided)) or "no rows"
        )

    @property
    def title(self) -> str:
        """The model and both files."""
        return f"{self.model}: {self.old} → {self.new}"


def columns(found: Comparisons) -> list[Column[Comparison]]:
    """The columns of the table."""
    return [column for column in COLUMNS if found.timed or column.title not in OF_SPEED]


def render(found: Comparisons, out: Console) -> None:
    """Print the differences, the reasons, the table, and the outcome."""
    for difference in found.differences:
        out.print(f"[yellow]note:[/] {escape(difference)}")
    for each in found.rows:
        if each.reason:
            out.print(f"  {escape(each.subject)}: {escape(each.reason)}")
    out.print(table(columns(found), found.rows, found.title))
    out.print(f"[{STYLES[found.outcome]}]{WORDS[found.outcome]}[/]: {escape(found.conclusion)}")


def as_markdown(found: Comparisons) -> str:
    """The comparison as Markdown."""
    blocks = [[f"## {WORDS[found.outcome]}: {markdown.literal(found.title)}"]]
    blocks.append([f"{markdown.literal(found.conclusion)}."])
    if found.rows:
        blocks.append(markdown.table(columns(found), found.rows))
    reasons = [
        f"* **{markdown.literal(each.subject)}**: {markdown.literal(each.reason)}" for each in found.rows if each.reason
    ]
    notes = [f"* {markdown.literal(difference)}" for difference in found.differences]
    blocks += [lines for lines in (reasons, notes) if lines]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def as_junit(found: Comparisons) -> str:
    """The comparison as JUnit XML, a case for each subject: one that became worse fails, and an undecided one is skipped."""
    cases = tuple(
        junit.Case(
            each.subject,
            found.model,
            "failure" if each.worse else "passed" if each.decided else "skipped",
            WORDS[Outcome.FAIL] if each.worse else WORDS[Outcome.PASS] if each.decided else "undecided",
            "; ".join(filter(None, (f"speed {each.speed}" if found.timed else "", each.outputs, each.reason))),
            properties={} if each.ratio is None else {"time new/old": repr(each.ratio[0])},
        )
        for each in found.rows
    )
    if not cases:
        cases = (junit.Case("the whole comparison", found.model, "error", "no rows", "there are no rows to compare"),)
    notes = {"note": "; ".join(found.differences)} if found.differences else {}
    return junit.written([junit.Suite(found.title, cases, properties=notes)])


def as_csv(found: Comparisons) -> str:
    """The comparison as CSV, a row for each subject."""
    head = (
        *("model", "old", "new", "subject", "time_ratio", "time_ratio_low", "time_ratio_high", "speed_verdict"),
        *("old_verdict", "new_verdict", "old_rel_rms", "new_rel_rms", "worse", "decided", "reason"),
    )
    return written(
        head,
        (
            [
                *(found.model, found.old, found.new, each.subject, *(_counted(each) or (None, None, None))),
                *(each.speed, *each.verdicts, *each.errors, each.worse, each.decided, each.reason),
            ]
            for each in found.rows
        ),
    )


def as_json(found: Comparisons) -> dict[str, object]:
    """The comparison as JSON values."""
    return {"outcome": WORDS[found.outcome], **plain(asdict(found))}


def _counted(each: Comparison) -> tuple[float, float, float] | None:
    """The ratio and its interval, unless the speed was refused."""
    return None if each.speed == SpeedVerdict.REFUSED else each.ratio


def _interval(each: Comparison) -> str:
    if each.ratio is None:
        return numbers.ABSENT
    text = numbers.time_ratio(*each.ratio)
    return not_counted(text, "") if each.speed == SpeedVerdict.REFUSED else text


def _errors(each: Comparison) -> str:
    return " → ".join(map(numbers.error, each.errors)) if any(each.verdicts) else numbers.ABSENT


OF_SPEED = ("time new/old (95% interval)", "speed")
COLUMNS: tuple[Column[Comparison], ...] = (
    Column("subject", lambda each: escape(each.subject), left=True),
    Column(OF_SPEED[0], _interval),
    Column(OF_SPEED[1], lambda each: f"[{STYLES.get(each.speed, 'default')}]{escape(each.speed)}[/]"),
    Column("verdict", lambda each: escape(each.outputs), left=True),
    Column("relative error", _errors),
)
