"""Print the results of training: a table of the training-parity checks, and sentences on those that are not EQUAL."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..errors import shown
from ..results.records import Check, Curve, Row, Training
from ..results.verdicts import EndVerdict, Verdict
from ..verdict import limits
from ..workload.optimizers import VARIANTS
from ..workload.recipe import DIFFERENCES
from . import numbers
from .notes import few
from .style import BROKEN, STYLES
from .tables import FirstThatFits, headed
from .text import quoted

CHECKS = ("weights", "forward", "loss", "backward", "gradients", "update", "statistics", "state", "ranks", "curve")
OF_PRECISION = ("precision", "master weights")  # between weights and forward
# Between gradients and update.
OF_RECIPES = (
    "unscaling",
    "scaling",
    "accumulation",
    "clipping",
    "schedule",
    "groups",
    "frozen",
    "average",
    "optimizer",
)
ORDER = (CHECKS[0], *OF_PRECISION, *CHECKS[1:5], *OF_RECIPES, *CHECKS[5:])
# The order of verdicts of one check over several steps. DRIFT is worse than UNTESTED here, because some step showed a difference.
SEVERITY = (
    Verdict.IDENTICAL, Verdict.EQUAL, Verdict.UNTESTED, Verdict.DRIFT, Verdict.DIFFERENT, Verdict.INVALID,
)  # fmt: skip
KNOWN = {**VARIANTS, **DIFFERENCES}  # differences of a framework's own optimizer -> what each means
QUIET = "dim"  # the style of a sentence that reports no fault
# The styles of sentences on end losses; others are BROKEN.
OF_END_LOSSES = {
    EndVerdict.SAME: "green",
    EndVerdict.UNDECIDED: STYLES[Verdict.UNTESTED],
    EndVerdict.HIGHER: STYLES[Verdict.DRIFT],
    EndVerdict.LOWER: STYLES[Verdict.DRIFT],
}
STATISTICAL = (
    "the end losses are compared by statistics, with a 95% Student-t interval of the differences paired by seed: this proves no "
    "equality, and one in twenty intervals misses by chance"
)


def training_tables(rows: Iterable[Row]) -> Iterator[RenderableType]:
    """A table of the checks, and sentences on them. Rows that were not trained are left out."""
    rows = list(rows)
    names, cells = checks_of(rows)
    if names:
        yield _title([row.training for row in rows if row.training is not None])
        yield _table_of_checks(names, cells)
    yield from sentences(rows)


def checks_of(rows: Iterable[Row]) -> tuple[list[str], dict[str, dict[str, Text]]]:
    """(the names of the checks in order, subject -> name of a check -> its cell). Rows that were not trained are left out."""
    cells = {row.subject: _cells(row.training) for row in rows if row.training is not None}
    found = dict.fromkeys(name for checks in cells.values() for name in checks)
    return [name for name in ORDER if name in found] + [name for name in found if name not in ORDER], cells


def sentences(rows: Iterable[Row]) -> Iterator[Text]:
    """Sentences on the checks that are not EQUAL."""
    yield from _sentences({row.subject: row.training for row in rows if row.training is not None})


def _title(trained: Sequence[Training]) -> Text:
    steps = sorted({check.step for training in trained for check in training.checks})
    every = len(steps) > 5 and steps == list(range(steps[-1] + 1))
    says = f"0 to {steps[-1]}" if every else ", ".join(map(str, steps))
    listed = f"; each cell is the worst of steps {says}" if len(steps) > 1 else ""
    loss = f"; loss {trained[0].loss}" if trained[0].loss else ""
    ranked = next((each.ranks for each in trained if each.ranks), "")
    ranks = f" on {shown(ranked)}" if ranked else ""
    return Text.assemble(
        ("training-parity checks", "bold"),
        f"{ranks} with {shown(trained[0].optimizer + loss)}: each check starts from the reference's own state{listed}\n",
        ("numbers: the largest residual / noise floor; values of a few units are rounding alone", QUIET),
    )


def _table_of_checks(names: Sequence[str], cells: dict[str, dict[str, Text]]) -> FirstThatFits:
    """A row for each subject and a column for each check, or the other way round when that is too wide."""
    across = _table("subject", names, {s: [c.get(n) for n in names] for s, c in cells.items()})
    down = _table("check", list(cells), {n: [c.get(n) for c in cells.values()] for n in names})
    return FirstThatFits([across, down])


def _table(corner: str, head: Sequence[str], body: dict[str, list[Text | None]]) -> Table:
    table = headed()
    for title in (corner, *head):
        table.add_column(Text(shown(title)), no_wrap=title == corner)
    for name, cells in body.items():
        table.add_row(Text(quoted(name)), *(cell or Text(numbers.ABSENT) for cell in cells))
    return table


def _cells(training: Training) -> dict[str, Text]:
    by_name: dict[str, list[Check]] = {}
    for check in training.checks:
        by_name.setdefault(check.name, []).append(check)
    cells = {name: _cell(checks) for name, checks in by_name.items()}
    if training.curves:
        cells["curve"] = _styled(max((curve.verdict for curve in training.curves), key=_severity))
    return cells


def _cell(checks: Sequence[Check]) -> Text:
    """The worst verdict of a check over the steps, with the names of known differences or with the worst ratio."""

    def severity(check: Check) -> tuple[int, bool]:
        return _severity(check.verdict), not check.difference  # drift without a name is worse

    worst = max(map(severity, checks))
    those = [check for check in checks if severity(check) == worst]
    verdict = those[0].verdict
    if verdict == Verdict.DRIFT and those[0].difference:
        names = dict.fromkeys(name for check in those for name in check.difference.split(", "))
        return _styled(verdict, ", ".join(names))
    ratios = [check.ratio for check in those if check.ratio is not None]
    return _styled(verdict, numbers.ratio(max(ratios, key=_nan_as_infinite)) if ratios else "")


def _severity(verdict: str) -> int:
    return SEVERITY.index(Verdict(verdict)) if verdict in SEVERITY else len(SEVERITY)


def _nan_as_infinite(ratio: float) -> float:
    return math.inf if math.isnan(ratio) else ratio


def _styled(verdict: str, more: str = "") -> Text:
    return Text(shown(f"{verdict} {more}".strip()), style=_style(verdict))


def _style(verdict: str) -> str:
    return STYLES.get(verdict, BROKEN)


# -- sentences --------------------------------------------------------------------------------------------------------

Sentences = Iterator[tuple[str, str]]  # of a style and a sentence


def _sentences(trained: dict[str, Training]) -> Iterator[Text]:
    """The first broken check of each subject, then notes. A sentence that several subjects share is printed once."""
    subjects_of: dict[tuple[str, str], list[str]] = {}
    for kind in (_first_broken, _dropout, _curve, _end_losses, _differences, _untested, _limits):
        for subject, training in trained.items():
            for styled in kind(training):
                subjects_of.setdefault(styled, []).append(subject)
    for (style, sentence), subjects in subjects_of.items():
        whose = "every subject" if 2 < len(subjects) == len(trained) else ", ".join(subjects)
        if style == QUIET:
            yield Text(f"  {shown(f'{whose}: {sentence}')}", style=style)
        else:
            yield Text.assemble("  ", (shown(whose), style), f": {shown(sentence)}")


def _first_broken(training: Training) -> Sentences:
    first = training.first
    if first is not None:
        ratio = "" if first.ratio is None else f": {numbers.ratio(first.ratio)} × its noise floor"
        yield _style(first.verdict), f"{first.label}: {first.says or first.verdict + ratio}"


def _dropout(training: Training) -> Sentences:
    """What is wrong with dropout, also where another check breaks before it."""
    wrong = (check for check in training.checks if check.name == "dropout" and check.verdict.fails)
    broken = next(wrong, None)
    if broken is not None and broken is not training.first:
        yield _style(broken.verdict), f"{broken.label}: {broken.says}"


def _curve(training: Training) -> Sentences:
    for curve in training.curves:
        if curve.says or curve.verdict in (Verdict.DIFFERENT, Verdict.INVALID):
            yield _style(curve.verdict), f"{curve.title}: {curve.says or curve.verdict}"


def _end_losses(training: Training) -> Sentences:
    for ends in training.ends:
        yield OF_END_LOSSES.get(ends.verdict, BROKEN), ends.says


def _differences(training: Training) -> Sentences:
    """The meaning of the framework's known differences."""
    told: set[str] = set()
    for check in training.checks:
        for name in filter(None, check.difference.split(", ")):
            if name not in told:
                told.add(name)
                yield _style(Verdict.DRIFT), f"{name}: {_meaning(name, check)}"
    for name in training.variants:
        if name not in told:
            variant = KNOWN.get(name, "a formula variant of the framework's own")
            yield QUIET, f"{name}, which did not show in these steps: {variant}"


def _meaning(name: str, check: Check) -> str:
    """The text of a formula variant; otherwise the clause of this name in the text of the check, or the whole text."""
    clauses = [clause for clause in check.says.split("; ") if clause.startswith(f"{name}: ")]
    return KNOWN.get(name) or next(iter(clauses), check.says).removeprefix(f"{name}: ")


def _untested(training: Training) -> Sentences:
    """The checks and parameters that could not be judged."""
    reasons: dict[str, dict[str, None]] = {}
    for check in training.checks:
        if check.verdict == Verdict.UNTESTED:
            reasons.setdefault(check.says, {})[check.name] = None
    for says, names in reasons.items():
        yield _style(Verdict.UNTESTED), f"{', '.join(names)} UNTESTED" + (f": {says}" if says else "")
    count = len(training.untested)
    if count:
        what, whose = ("parameter", "its") if count == 1 else ("parameters", "their")
        share = limits.NULL.get(training.precision, limits.NULL["float32"])
        changed = (
            f"change in a step by over {share:.0%}"
            if training.own_step
            else f"gradient by over {share:.0%}"
            + "; the backward check covers each layer by itself" * (not training.ranks)
        )
        yield (
            _style(Verdict.UNTESTED),
            f"{count} {what} UNTESTED as a whole: {few(training.untested)}: rounding alone changes {whose} {changed}",
        )


def _limits(training: Training) -> Sentences:
    """Checks that were made only in part, what they do not prove, and differences from a normal training run."""
    if training.judged:
        yield QUIET, training.judged
    seen = _detection_limits(training)
    if seen:
        yield QUIET, f"a relative error would have been seen from: {seen}"
    for why, names in _left_out(training).items():
        yield QUIET, f"state: {few(names)} not compared: {why}"
    for check in training.checks:
        if check.name in ("forward", "backward") and 0 < check.compared < check.known:
            yield QUIET, f"{check.name}: {check.compared} of {check.known} layers checked"
        elif check.verdict == Verdict.EQUAL and check.name in ("precision", "scaling"):
            yield QUIET, check.says
    if training.ranks and not training.own_step and all(check.name != "forward" for check in training.checks):
        yield QUIET, "layers are not compared one by one on several ranks: a run without --ranks does that"
    if training.apart:
        yield (
            QUIET,
            f"the batch norms of each rank use its own items, and so do those of the reference: {few(training.apart)}",
        )
    if training.dropout_disabled:
        yield QUIET, f"dropout disabled in {few(training.dropout_disabled)}"
    for curve in training.curves:
        if curve.judged < len(curve.reference):
            yield QUIET, _end_of_judging(curve)
    if training.ends:
        yield QUIET, STATISTICAL


def _left_out(training: Training) -> dict[str, list[str]]:
    """Why values of the state of a user's own step were not compared -> their names."""
    found: dict[str, list[str]] = {}
    for path, why in training.state_left_out.items():
        found.setdefault(why, []).append(path)
    return found


def _detection_limits(training: Training) -> str:
    """The largest detection limit of each check that has any, in the median group of values and in the worst one."""
    found = []
    for name in ORDER:
        checks = [check for check in training.checks if check.name == name and check.detection_limit is not None]
        if checks:
            typical = max(check.detection_limit or 0.0 for check in checks)
            worst = max(check.detection_limit_worst or 0.0 for check in checks)
            group = f" ({worst:.1g} in its worst group of values)" if worst > typical else ""
            found.append(f"{name} {typical:.1g}{group}")
    return ", ".join(found)


def _end_of_judging(curve: Curve) -> str:
    """The first step that is not judged, and the distance of the replicas there."""
    step, apart = curve.judged, ""
    if step < min(len(curve.low), len(curve.high)):
        spread, size = curve.high[step] - curve.low[step], abs(curve.reference[step])
        if size and math.isfinite(spread / size):
            apart = f"{numbers.significant(spread / size, 1)} of the loss "
    return (
        f"{curve.title.removeprefix('loss ')} judged for {step} of {len(curve.reference)} steps: at step {step} rounding alone "
        f"drives replicas {apart}apart, too far to tell from what training has changed; later steps are not compared"
    )
