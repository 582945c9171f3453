from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ..errors import UsageError
from ..report import numbers
from ..report.rows import not_counted
from ..report.style import STYLES
from ..report.tables import headed
from ..report.terminal import console
from ..results.file import read
from ..results.records import Result, Row, Sample
from ..results.verdicts import Outcome, SpeedVerdict, Verdict
from ..timing import statistics as timing

HELP = "compare two results of one model: which rows became slower or faster, or less equal"
GROUP = "results"
EXAMPLE = """examples:
  xverify run mlp --effort standard --json old.json
  (change something)
  xverify run mlp --effort standard --json new.json
  xverify diff old.json new.json
  xverify diff old.json new.json --relative    compare ratios to the baseline of each run, on a machine whose speed changes"""
EXIT_CODES = {
    0: "no row became slower, and no verdict became worse",
    1: "a row became slower, its verdict worse (EQUAL to DRIFT counts), or it no longer runs",
    2: "a wrong command line, an unusable file, or results that do not compare",
    4: "no row is known to have become worse, and at least one is undecided",
}

# Settings that must be equal in both runs; otherwise their figures cannot be compared.
SETTINGS = (
    "model",
    "optimizer",
    "match_optimizer",
    "data",
    "time_input",
    "batch",
    "threads",
    "pin",
    "device",
    "allocator",
    "seed",
    "cases",
    "weights",
    "warmup",
    "rerun",
    "reference",
)
HOST = ("cpu", "cores", "system")
CANARY = math.log(1.05)  # when the machine's own speed changed more than this, seconds of two runs cannot be compared
DECIDED = (SpeedVerdict.FASTER, SpeedVerdict.SAME, SpeedVerdict.BASELINE)


@dataclass(frozen=True)
class Comparison:
    """One subject in both results.

    interval: new time / old time with its 95% interval, as text.
    speed: the verdict on this ratio, or "-".
    reason: why there is no definite verdict on the speed; None when there is one.
    outputs: the verdicts on the outputs, as text.
    error: the relative errors, as text.
    worse: whether the subject is slower, or less equal.
    decided: whether the verdicts on speed and outputs are both known.
    """

    subject: str
    interval: str
    speed: str
    reason: str | None
    outputs: str
    error: str
    worse: bool
    decided: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD.json", help="a result file of xverify run")
    parser.add_argument("new", metavar="NEW.json", help="a later result file")
    parser.add_argument(
        "--relative", action="store_true", help="compare the ratio of each row's time to the baseline of its run"
    )
    parser.add_argument("--anyway", action="store_true", help="also compare results of different hosts or settings")


def main(args: argparse.Namespace) -> int:
    """Print one row for each subject, and return a code of EXIT_CODES."""
    old, new = read(Path(args.old)), read(Path(args.new))
    differences = [*_differences(old, new), *([] if args.relative else _machine(old, new))]
    if differences and not args.anyway:
        raise UsageError(f"{args.old} and {args.new} do not compare: {'; '.join(differences)}. See --anyway")
    out = console()
    for difference in differences:
        out.print(f"[yellow]note:[/] {escape(difference)}", soft_wrap=True)
    found = compare(old, new, args.relative, args.old, args.new)
    _print(found, out, f"{new.model}: {args.old} → {args.new}")
    return _conclude(found, out).exit_code


def compare(old: Result, new: Result, relative: bool, old_name: str = "old", new_name: str = "new") -> list[Comparison]:
    """Compare every subject of two results, in the order of the old one.

    relative: compare ratios to the baseline of each run, instead of seconds.
    old_name, new_name: the names of the results, for a subject that only one of them has.
    """
    before, after = ({_name(row, result): row for row in result.rows} for result in (old, new))
    both = [subject for subject in after if subject in before]
    baselines = {_name(result.baseline(row), result) for result in (old, new) for row in result.rows}
    compared = [subject for subject in both if not (relative and subject in baselines)]
    changes: dict[str, timing.Estimate] = {}
    for subject in compared:
        logs = _logs(before[subject], old, relative), _logs(after[subject], new, relative)
        if min(map(len, logs)) > 1:
            changes[subject] = timing.change(*logs)
    speeds = timing.verdicts(changes)
    found = []
    for subject in dict.fromkeys([*before, *after]):
        if subject not in both:
            only = f"only in {new_name if subject in after else old_name}"
            found.append(Comparison(subject, "-", "-", None, only, "-", worse=False, decided=False))
            continue
        rows = before[subject], after[subject]
        if subject in speeds:
            speed, reason = speeds[subject]
        else:
            speed, reason = _undecided(rows, (old, new), relative)
            if subject not in compared and all(row.speed is not None and row.speed.counted for row in rows):
                speed, reason = SpeedVerdict.BASELINE, None
        outputs, is_worse, known = _outputs(*rows)
        found.append(
            Comparison(
                subject=subject,
                interval=_interval(changes[subject]) if subject in changes else "-",
                speed=speed,
                reason=reason,
                outputs=outputs,
                error=" → ".join(map(_error, rows)),
                worse=is_worse or speed == SpeedVerdict.SLOWER,
                decided=known and (speed in DECIDED or _untimed(rows)),
            )
        )
    return found


def _print(found: Sequence[Comparison], out: Console, title: str) -> None:
    """Print the reasons, and then the table."""
    table = headed(title)
    for name in ("subject", "time new/old (95% interval)", "speed", "verdict", "relative error"):
        table.add_column(name, justify="left" if name in ("subject", "verdict") else "right", no_wrap=True)
    for each in found:
        speed = f"[{STYLES.get(each.speed, 'default')}]{each.speed}[/]"
        interval = each.interval
        if each.speed == SpeedVerdict.REFUSED and interval != numbers.ABSENT:
            interval = not_counted(interval, "")
        table.add_row(escape(each.subject), interval, speed, escape(each.outputs), each.error)
        if each.reason:
            out.print(f"  {escape(each.subject)}: {escape(each.reason)}", soft_wrap=True)
    out.print(table)


def _conclude(found: Sequence[Comparison], out: Console) -> Outcome:
    """Print the last line, and return its outcome."""
    worse = [each.subject for each in found if each.worse]
    if worse:
        out.print(f"[bold red]WORSE[/]: {escape(', '.join(worse))}")
        return Outcome.FAIL
    undecided = [each.subject for each in found if not each.decided]
    if undecided:
        out.print(f"[bold yellow]INCONCLUSIVE[/]: {escape(', '.join(undecided))}")
        return Outcome.INCONCLUSIVE
    out.print(f"[bold green]NOT WORSE[/]: {len(found)} subjects")
    return Outcome.PASS


def _differences(old: Result, new: Result) -> list[str]:
    """Sentences about the settings and properties of the machine that differ, with both values."""
    if {"check"} == {old.settings.task, new.settings.task} and _timed(old) != _timed(new):
        return [f"only {'the old' if _timed(old) else 'the new'} result has speeds (xverify check --time)"]
    pairs = [
        ("task", ",".join(old.tasks), ",".join(new.tasks)),
        *((name, getattr(old.settings, name), getattr(new.settings, name)) for name in SETTINGS),
        *((name, getattr(old.host, name), getattr(new.host, name)) for name in HOST),
    ]
    found = [f"{name} was {before!r}, is {after!r}" for name, before, after in pairs if before != after]
    if old.weights.digest != new.weights.digest:
        found.append(f"the weights were {old.weights.digest}, are {new.weights.digest}")
    return found


def _timed(result: Result) -> bool:
    """Whether some row has a speed."""
    return any(row.speed is not None for row in result.rows)


def _machine(old: Result, new: Result) -> list[str]:
    """Sentences about a change of the machine's own speed, measured by a fixed piece of work in every round; [] without one."""
    before, after = old.noise.canary_seconds, new.noise.canary_seconds
    if "check" in (old.settings.task, new.settings.task) and not (_timed(old) and _timed(new)):
        return []  # what has no speed is compared by its outputs alone
    if not before or not after:
        return ["one of the results has no measurement of the machine's own speed"]
    change = math.log(statistics.median(after) / statistics.median(before))
    if abs(change) <= CANARY:
        return []
    way = "slower" if change > 0 else "faster"
    return [f"the machine itself was {math.expm1(abs(change)):.0%} {way} in the second run (try --relative)"]


def _logs(row: Row, result: Result, relative: bool) -> list[float]:
    """For each process run, the logarithm of the seconds of a call or of their ratio to the baseline's seconds."""
    samples = _samples(row)
    if not relative:
        return [math.log(seconds) for seconds in timing.process_run_seconds(samples)] if samples else []
    pairs: Mapping[int, list[float]] = timing.log_ratios(samples, _samples(result.baseline(row)))
    return [statistics.median(logs) for logs in pairs.values()]


def _name(row: Row, result: Result) -> str:
    """The name of a row: its subject, and the task when the result has several tasks."""
    return row.subject + (f", {row.task}" if len(result.tasks) > 1 else "")


def _samples(row: Row) -> list[Sample]:
    if row.speed is None or not row.speed.counted:
        return []
    return timing.clean(row.speed.samples)


def _undecided(rows: tuple[Row, Row], results: tuple[Result, Result], relative: bool) -> tuple[str, str | None]:
    """(the text shown instead of a verdict on speed, why there is no verdict). rows: of the old result and of the new one."""
    for when, row, result in zip(("before", "now"), rows, results):
        if row.speed is None:
            return "-", None if _untimed(rows) else f"not timed {when}: {row.reason}"
        if not row.speed.counted:
            return SpeedVerdict.REFUSED, f"refused {when}: {row.speed.reason}"
        first = result.baseline(row)
        if relative and (first.speed is None or not first.speed.counted):
            why = first.speed.reason if first.speed else first.reason
            return SpeedVerdict.REFUSED, f"the baseline {first.subject} has no speed that counts {when}: {why}"
    return "-", "one process run is too few for a verdict on speed: run both with --effort standard"


def _outputs(old: Row, new: Row) -> tuple[str, bool, bool]:
    """(the verdicts on the outputs as text, whether the new one is worse, whether both are known)."""
    if old.error is None or new.error is None:
        before, after = (row.error.verdict if row.error else row.status for row in (old, new))
        return f"{before} → {after}", old.error is not None, False
    was, now = old.error.verdict, new.error.verdict
    says = "equal" if now <= Verdict.EQUAL else "warning" if now == Verdict.DRIFT else "different"
    worse = now > max(was, Verdict.EQUAL)  # IDENTICAL and EQUAL are as good as each other
    return (f"{says} ({was} → {now})" if was != now else f"{says} ({now})"), worse, True


def _untimed(rows: tuple[Row, Row]) -> bool:
    """Whether neither row was to be timed, because it answers a question about the outputs of a model file alone."""
    return all(row.speed is None and row.status == "ok" and row.task in ("runtime", "conversion") for row in rows)


def _interval(change: timing.Estimate) -> str:
    ends = (change.mean - change.half, change.mean + change.half)
    return numbers.time_ratio(math.exp(change.mean), *map(math.exp, ends))


def _error(row: Row) -> str:
    return numbers.error(row.error.rel_rms if row.error else None)
