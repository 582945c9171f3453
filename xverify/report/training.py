"""What a training run found: the checks of every subject in one table, and sentences on those that do not hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ..results.records import Check, Curve, Row, Training
from ..workload.optimizers import VARIANTS

LADDER = ("weights", "forward", "loss", "backward", "gradients", "update", "statistics", "curve")
RANKS = ("IDENTICAL", "EQUAL", "UNTESTED", "DRIFT", "DIFFERENT", "INVALID")
BROKEN = ("DIFFERENT", "INVALID")
FEW = 4  # names in a sentence


def training_tables(rows: Iterable[Row]) -> Iterator[RenderableType]:
    """A table of the checks, and what there is to say of them. Nothing for rows that were not trained."""
    trained = {row.subject: row.training for row in rows if row.training is not None}
    cells = {subject: _cells(training) for subject, training in trained.items()}
    if any(cells.values()):
        learnt = list(trained.values())
        steps = [str(step) for step in sorted({check.step for training in learnt for check in training.checks})]
        listed = f"; the worst of steps {', '.join(steps)}" if len(steps) > 1 else ""
        yield Text.assemble(
            ("training", "bold"),
            f" with {learnt[0].optimizer}: each check by itself, from the reference's own state{listed}\n",
            ("figures: the largest residual over its floor of rounding; up to a few is rounding alone", "dim"),
        )
        yield _Ladders(cells)
    yield from _sentences(trained)


class _Ladders:
    """Subjects downwards and checks across, or the other way round where that is too wide."""

    def __init__(self, cells: dict[str, dict[str, Text]]) -> None:
        found = dict.fromkeys(name for checks in cells.values() for name in checks)
        names = [name for name in LADDER if name in found] + [name for name in found if name not in LADDER]
        self.across = _table("subject", names, {s: [c.get(n) for n in names] for s, c in cells.items()})
        self.down = _table("training_step", list(cells), {n: [c.get(n) for c in cells.values()] for n in names})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = console.measure(self.across, options=options.update(width=1000)).maximum > options.max_width
        yield self.down if wide else self.across


def _table(corner: str, head: Sequence[str], body: dict[str, list[Text | None]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in (corner, *head):
        table.add_column(Text(title), no_wrap=title == corner)
    for name, cells in body.items():
        table.add_row(Text(name), *(cell or Text("-") for cell in cells))
    return table


def _cells(training: Training) -> dict[str, Text]:
    by_name: dict[str, list[Check]] = {}
    for check in training.checks:
        by_name.setdefault(check.name, []).append(check)
    cells = {name: _cell(checks) for name, checks in by_name.items()}
    if training.curve is not None:
        cells["curve"] = _coloured(training.curve.verdict)
    return cells


def _cell(checks: Sequence[Check]) -> Text:
    """The worst verdict of a check over the steps: by name when it is the framework's own, else with its worst ratio."""

    def severity(check: Check) -> tuple[int, bool]:
        return _rank(check.verdict), not check.difference  # drift without a name is the worse

    worst = max(map(severity, checks))
    those = [check for check in checks if severity(check) == worst]
    verdict = those[0].verdict
    if verdict == "DRIFT" and those[0].difference:
        names = dict.fromkeys(name for check in those for name in check.difference.split(", "))
        return _coloured(verdict, ", ".join(names))
    ratios = [check.ratio for check in those if check.ratio is not None]
    return _coloured(verdict, _figure(max(ratios, key=_size)) if ratios else "")


def _rank(verdict: str) -> int:
    return RANKS.index(verdict) if verdict in RANKS else len(RANKS)


def _size(ratio: float) -> float:
    return math.inf if math.isnan(ratio) else ratio


def _coloured(verdict: str, more: str = "") -> Text:
    return Text(f"{verdict} {more}".strip(), style=_colour(verdict))


def _colour(verdict: str) -> str:
    from .terminal import COLOURS  # which prints what this module yields

    return COLOURS.get(verdict, "bold red")


def _figure(ratio: float) -> str:
    """Two significant digits."""
    if not math.isfinite(ratio):
        return "∞" if ratio > 0 else "NaN"
    return f"{ratio:.0f}" if 100 <= ratio < 10_000 else f"{ratio:.2g}"


# -- sentences --------------------------------------------------------------------------------------------------------


def _sentences(trained: dict[str, Training]) -> Iterator[Text]:
    """The first broken check of each subject, then what is worth to know; what several subjects share is said once."""
    said: dict[tuple[str, str], list[str]] = {}
    for kind in (_breaks, _curve_says, _differs, _unseen, _leaves_out):
        for subject, training in trained.items():
            for colour, sentence in kind(training):
                said.setdefault((colour, sentence), []).append(subject)
    for (colour, sentence), subjects in said.items():
        whose = "every subject" if 2 < len(subjects) == len(trained) else ", ".join(subjects)
        if colour == "dim":
            yield Text(f"  {whose}: {sentence}", style=colour)
        else:
            yield Text.assemble("  ", (whose, colour), f": {sentence}")


Said = Iterator[tuple[str, str]]  # a colour and a sentence


def _breaks(training: Training) -> Said:
    first = training.first
    if first is not None:
        ratio = "" if first.ratio is None else f": {_figure(first.ratio)} x its floor"
        yield _colour(first.verdict), f"{first.name}, step {first.step}: {first.says or first.verdict + ratio}"


def _curve_says(training: Training) -> Said:
    curve = training.curve
    if curve is not None and (curve.says or curve.verdict in BROKEN):
        yield _colour(curve.verdict), f"loss curve: {curve.says or curve.verdict}"


def _differs(training: Training) -> Said:
    """What the framework's own differences mean."""
    told: set[str] = set()
    for check in training.checks:
        for name in filter(None, check.difference.split(", ")):
            if name not in told:
                told.add(name)
                yield _colour("DRIFT"), f"{name}: {_meaning(name, check)}"
    for name in training.variants:
        if name not in told:
            yield "dim", f"{name}, which did not show in these steps: {VARIANTS.get(name, 'a form of its own')}"


def _meaning(name: str, check: Check) -> str:
    """A form's text; else the clause of that name in what the check says, or all of it."""
    clauses = [clause for clause in check.says.split("; ") if clause.startswith(f"{name}: ")]
    return VARIANTS.get(name) or next(iter(clauses), check.says).removeprefix(f"{name}: ")


def _unseen(training: Training) -> Said:
    """Checks and parameters of which nothing could be said."""
    reasons: dict[str, dict[str, None]] = {}
    for check in training.checks:
        if check.verdict == "UNTESTED":
            reasons.setdefault(check.says, {})[check.name] = None
    for says, names in reasons.items():
        yield _colour("UNTESTED"), f"{', '.join(names)} UNTESTED" + (f": {says}" if says else "")
    count = len(training.untested)
    if count:
        what, whose = ("parameter", "its") if count == 1 else ("parameters", "their")
        yield (
            _colour("UNTESTED"),
            f"{count} {what} UNTESTED as a whole: {_few(training.untested)}: rounding moves {whose} gradient by over 1% of it; "
            "backward judges each layer by itself",
        )


def _leaves_out(training: Training) -> Said:
    """What was compared in part or otherwise than a training run would have it."""
    for check in training.checks:
        if check.name in ("forward", "backward") and 0 < check.compared < check.known:
            yield "dim", f"{check.name}: {check.compared} of {check.known} layers compared"
    if training.dropout_disabled:
        yield "dim", f"dropout held off in {_few(training.dropout_disabled)}"
    if training.curve is not None and training.curve.judged < len(training.curve.reference):
        yield "dim", _stops(training.curve)


def _stops(curve: Curve) -> str:
    """Where judging of the curve ends, and how far apart replicas are there."""
    at, apart = curve.judged, ""
    if at < min(len(curve.low), len(curve.high)):
        spread, size = curve.high[at] - curve.low[at], abs(curve.reference[at])
        if size and math.isfinite(spread / size):
            apart = f"{spread / size:.1g} of the loss "
    return f"curve judged for {at} of {len(curve.reference)} steps: rounding alone pulls replicas {apart}apart there"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:FEW]) + (", …" if len(names) > FEW else "")
