from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape

from ..errors import UsageError
from ..report import numbers
from ..report.style import STYLES
from ..report.tables import headed
from ..report.terminal import console
from ..results.file import read
from ..results.records import Sample
from ..timing import statistics as timing

HELP = "compare two results of one model: which row is faster or slower, equal or different"
EXAMPLE = """examples:
  xverify run mlp --effort standard --json old.json
  (change something)
  xverify run mlp --effort standard --json new.json
  xverify diff old.json new.json
  xverify diff old.json new.json --relative    each row against the baseline of its own run, whatever the machine did between

exit codes here: 0 no row is slower or different, 1 one is, 4 none is known to be, but one could not be decided"""

SETTINGS = (
    "model",
    "task",
    "optimizer",
    "match_optimizer",
    "data",
    "time_input",
    "batch",
    "threads",
    "pin",
    "device",
    "seed",
    "cases",
    "weights",
    "warmup",
    "rerun",
    "reference",
)
HOST = ("cpu", "cores", "system")
CANARY = math.log(1.05)  # a change of the machine's own speed by which seconds of two runs can no more be compared
RANKS = ("IDENTICAL", "EQUAL", "DRIFT", "UNTESTED", "DIFFERENT", "INVALID")
EQUAL = ("IDENTICAL", "EQUAL")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD.json", help="what xverify run --json wrote")
    parser.add_argument("new", metavar="NEW.json", help="what it wrote later")
    parser.add_argument("--relative", action="store_true", help="compare each row's time over its own run's baseline")
    parser.add_argument("--anyway", action="store_true", help="compare results of different hosts or settings, too")


def main(args: argparse.Namespace) -> int:
    """Print a row a subject; exit as HELP says."""
    old, new = read(Path(args.old)), read(Path(args.new))
    differences = [*_differences(old, new), *([] if args.relative else _machine(old, new))]
    if differences and not args.anyway:
        raise UsageError(f"{args.old} and {args.new} do not compare: {'; '.join(differences)}. See --anyway")
    theirs, mine = ({_name(row, result): row for row in result["rows"]} for result in (old, new))
    both = [subject for subject in mine if subject in theirs]
    compared = both
    if args.relative:
        baselines = {_name(_baseline(row, result), result) for result in (old, new) for row in result["rows"]}
        compared = [subject for subject in both if subject not in baselines]
    changes = {
        subject: timing.change(before, after)
        for subject in compared
        if len(before := _logs(theirs[subject], old, args.relative)) > 1
        and len(after := _logs(mine[subject], new, args.relative)) > 1
    }
    speeds = timing.verdicts(changes)
    out = console()
    for difference in differences:
        out.print(f"[yellow]note:[/] {escape(difference)}", soft_wrap=True)
    table = headed(f"{new['model']}: {args.old} → {args.new}")
    for name in ("subject", "time new/old (95% interval)", "speed", "verdict", "relative error"):
        table.add_column(name, justify="left" if name in ("subject", "verdict") else "right", no_wrap=True)
    worse, open_questions = [], []
    for subject in dict.fromkeys([*theirs, *mine]):
        if subject not in both:
            table.add_row(escape(subject), "-", "-", "only in " + (args.new if subject in mine else args.old), "-")
            open_questions.append(subject)
            continue
        speed, reason = _speed(subject, speeds, theirs, mine, compared)
        numbers, is_worse, known = _numbers(theirs[subject], mine[subject])
        table.add_row(
            escape(subject),
            _interval(changes[subject]) if subject in changes else "-",
            f"[{STYLES.get(speed, 'default')}]{speed}[/]",
            numbers,
            f"{_error(theirs[subject])} → {_error(mine[subject])}",
        )
        if reason:
            out.print(f"  {escape(subject)}: {escape(reason)}", soft_wrap=True)
        if speed == "SLOWER" or is_worse:
            worse.append(subject)
        elif speed not in ("FASTER", "SAME", "BASELINE") or not known:
            open_questions.append(subject)
    out.print(table)
    if worse:
        out.print(f"[bold red]WORSE[/]: {escape(', '.join(worse))}")
    elif open_questions:
        out.print(f"[bold yellow]INCONCLUSIVE[/]: {escape(', '.join(open_questions))}")
    else:
        out.print(f"[bold green]NOT WORSE[/]: {len(both)} subjects")
    return 1 if worse else 4 if open_questions else 0


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What forbids a comparison, in words with both values."""
    found = []
    for place, names in (("settings", SETTINGS), ("host", HOST)):
        for name in names:
            before, after = old[place].get(name), new[place].get(name)
            if before != after:
                found.append(f"{name} was {before!r}, is {after!r}")
    before, after = old["weights"].get("digest"), new["weights"].get("digest")
    if before != after:
        found.append(f"the weights were {before}, are {after}")
    return found


def _machine(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Whether the fixed work that every round does took another time: then seconds of the two runs do not compare."""
    before, after = (result.get("noise", {}).get("canary_seconds") for result in (old, new))
    if not before or not after:
        return ["one of them has no measure of the machine's own speed"]
    moved = math.log(statistics.median(after) / statistics.median(before))
    if abs(moved) <= CANARY:
        return []
    way = "slower" if moved > 0 else "faster"
    return [f"the machine itself was {math.expm1(abs(moved)):.0%} {way} in the second (try --relative)"]


def _logs(row: Mapping[str, Any], result: Mapping[str, Any], relative: bool) -> list[float]:
    """For each launch the log of seconds a call, or of its ratio to the baseline."""
    samples = _samples(row)
    if not relative:
        return [math.log(seconds) for seconds in timing.launch_seconds(samples)] if samples else []
    pairs = timing.log_ratios(samples, _samples(_baseline(row, result)))
    return [statistics.median(logs) for logs in pairs.values()]


def _name(row: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """What a row is called: its subject, with the task where the result has several."""
    return row["subject"] + (f", {row['task']}" if len(result.get("tasks", ())) > 1 else "")


def _baseline(row: Mapping[str, Any], result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first row of the same task."""
    found: Mapping[str, Any] = next(other for other in result["rows"] if other.get("task") == row.get("task"))
    return found


def _samples(row: Mapping[str, Any]) -> list[Sample]:
    if not row["speed"] or row["speed"]["verdict"] == "REFUSED":
        return []
    return timing.clean(Sample(**sample) for sample in row["speed"]["samples"])


def _speed(
    subject: str,
    speeds: Mapping[str, tuple[str, str | None]],
    theirs: Mapping[str, Any],
    mine: Mapping[str, Any],
    compared: list[str],
) -> tuple[str, str | None]:
    if subject in speeds:
        return speeds[subject]
    if subject not in compared:
        return "BASELINE", None
    for when, row in (("before", theirs[subject]), ("now", mine[subject])):
        if row["speed"] is None:
            return "-", f"not timed {when}: {row['reason']}"
        if row["speed"]["verdict"] == "REFUSED":
            return "REFUSED", f"refused {when}: {row['speed']['reason']}"
    return "-", "one launch has no verdict on speed: run both with --effort standard"


def _numbers(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, bool, bool]:
    """(what is said of the outputs, whether they got worse, whether both are known)."""
    before, after = (row["error"]["verdict"] if row["error"] else row["status"] for row in (old, new))
    if before not in RANKS or after not in RANKS:
        return f"{before} → {after}", before in RANKS, False
    says = "equal" if after in EQUAL else "different"
    both_equal = before in EQUAL and after in EQUAL
    worse = RANKS.index(after) > RANKS.index(before) and not both_equal
    return f"{says} ({before} → {after})" if before != after else f"{says} ({after})", worse, True


def _interval(change: timing.Estimate) -> str:
    ends = (change.mean - change.half, change.mean + change.half)
    return numbers.time_ratio(math.exp(change.mean), *map(math.exp, ends))


def _error(row: Mapping[str, Any]) -> str:
    return numbers.error(row["error"]["rel_rms"] if row["error"] else None)
