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


def columns(comparisons: Comparisons) -> list[Column[Comparison]]:
    """The columns of the table."""
    return [column for column in COLUMNS if comparisons.timed or column.title not in OF_SPEED]


def render(comparisons: Comparisons, out: Console) -> None:
    """Print the differences, the reasons, the table, and the outcome."""
    for difference in comparisons.differences:
        out.print(f"[yellow]note:[/] {escape(difference)}")
    for each in comparisons.rows:
        if each.reason:
            out.print(f"  {escape(each.subject)}: {escape(each.reason)}")
    out.print(table(columns(comparisons), comparisons.rows, comparisons.title))
    out.print(f"[{STYLES[comparisons.outcome]}]{WORDS[comparisons.outcome]}[/]: {escape(comparisons.conclusion)}")


def as_markdown(comparisons: Comparisons) -> str:
    """The comparison as Markdown."""
    blocks = [[f"## {WORDS[comparisons.outcome]}: {markdown.literal(comparisons.title)}"]]
    blocks.append([f"{markdown.literal(comparisons.conclusion)}."])
    if comparisons.rows:
        blocks.append(markdown.table(columns(comparisons), comparisons.rows))
    reasons = [
        f"* **{markdown.literal(each.subject)}**: {markdown.literal(each.reason)}"
        for each in comparisons.rows
        if each.reason
    ]
    notes = [f"* {markdown.literal(difference)}" for difference in comparisons.differences]
    blocks += [lines for lines in (reasons, notes) if lines]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def as_junit(comparisons: Comparisons) -> str:
    """The comparison as JUnit XML, a case for each subject: one that became worse fails, and an undecided one is skipped."""
    cases = tuple(
        junit.Case(
            each.subject,
            comparisons.model,
            "failure" if each.worse else "passed" if each.decided else "skipped",
            WORDS[Outcome.FAIL] if each.worse else WORDS[Outcome.PASS] if each.decided else "undecided",
            "; ".join(filter(None, (f"speed {each.speed}" if comparisons.timed else "", each.outputs, each.reason))),
            properties={} if each.ratio is None else {"time new/old": repr(each.ratio[0])},
        )
        for each in comparisons.rows
    )
    if not cases:
        cases = (
            junit.Case("the whole comparison", comparisons.model, "error", "no rows", "there are no rows to compare"),
        )
    notes = {"note": "; ".join(comparisons.differences)} if comparisons.differences else {}
    return junit.written([junit.Suite(comparisons.title, cases, properties=notes)])


def as_csv(comparisons: Comparisons) -> str:
    """The comparison as CSV, a row for each subject."""
    head = (
        *("model", "old", "new", "subject", "time_ratio", "time_ratio_low", "time_ratio_high", "speed_verdict"),
        *("old_verdict", "new_verdict", "old_rel_rms", "new_rel_rms", "worse", "decided", "reason"),
    )
    return written(
        head,
        (
            [
                *(
                    comparisons.model,
                    comparisons.old,
                    comparisons.new,
                    each.subject,
                    *(_counted(each) or (None, None, None)),
                ),
                *(each.speed, *each.verdicts, *each.errors, each.worse, each.decided, each.reason),
            ]
            for each in comparisons.rows
        ),
    )


def as_json(comparisons: Comparisons) -> dict[str, object]:
    """The comparison as JSON values."""
    return {"outcome": WORDS[comparisons.outcome], **plain(asdict(comparisons))}


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
