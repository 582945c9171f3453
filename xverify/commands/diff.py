from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import UsageError
from ..report import compared
from ..report.compared import Comparison, Comparisons
from ..report.options import Tables
from ..report.terminal import console
from ..results.records import Result, Row, Sample
from ..results.verdicts import SpeedVerdict, Verdict
from ..timing import statistics as timing
from ..workload.declaration import declared
from ..workload.options import named
from . import _outputs as outputs
from ._arguments import Parser, add
from ._results import named_files, source, source_before

HELP = "compare two results of one model: which rows became slower or faster, or less equal"
GROUP = "results"
EXAMPLE = """examples:
  xverify run mlp --effort standard --json old.json
  (change something)
  xverify run mlp --effort standard --json new.json
  xverify diff old.json new.json
  xverify diff    the last result and the one of the same model before it
  xverify diff old.json new.json --relative    compare ratios to the baseline of each run, on a machine whose speed changes
  xverify diff old.json new.json --errors-only --markdown diff.md
      compare results of different machines, without their speeds"""
EXIT_CODES = {
    0: "no row became slower, and no verdict became worse",
    1: "a row became slower, its verdict worse (EQUAL to DRIFT counts), or it no longer runs",
    2: "a wrong command line, an unusable file, or results that do not compare",
    4: "no row is known to have become worse, and at least one is undecided",
}

OPTIONS = (*declared(Tables), named("force"))
# Settings that must be equal in both runs; otherwise their figures cannot be compared.
SETTINGS = (
    "optimizer",
    "match_optimizer",
    "batch",
    "device",
    "seed",
    "cases",
)
OF_SPEED = ("time_input", "threads", "pin", "allocator", "warmup", "rerun")  # settings that change the speed alone
HOST = ("cpu", "cores", "system")
CANARY = math.log(1.05)  # when the machine's own speed changed more than this, seconds of two runs cannot be compared
DECIDED = (SpeedVerdict.FASTER, SpeedVerdict.SAME, SpeedVerdict.BASELINE)


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "old", metavar="OLD.json", nargs="?",
        help="a result file of xverify run (default: the newest of the same model before the last result)",
    )  # fmt: skip
    parser.add_argument("new", metavar="NEW.json", nargs="?", help="a later result file (default: the last result)")
    parser.add_argument(
        "--relative", action="store_true", help="compare the ratio of each row's time to the baseline of its run"
    )
    parser.add_argument(
        "--errors-only",
        action="store_true",
        help="compare verdicts and errors alone, also of runs on different machines",
    )
    parser.add_argument("--anyway", action="store_true", help="also compare results of different hosts or settings")
    add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Print one row for each subject, and return a code of EXIT_CODES."""
    read_files = [*named_files("OLD.json", [args.old]), *named_files("NEW.json", [args.new])]
    outputs.check(args, OPTIONS, read_files, summary=True, force=args.force)
    if args.relative and args.errors_only:
        raise UsageError(
            "--relative says how speeds are compared, and --errors-only compares none: leave one of them out"
        )
    given = None if args.old is None else source(args.old)
    later = source(args.new)
    earlier = given or source_before(later)
    old, new, timed = earlier.result, later.result, not args.errors_only
    differing = differences(old, new, timed)
    if timed and not args.relative:
        differing += _machine(old, new)
    if differing and not args.anyway:
        raise UsageError(f"{earlier.name} and {later.name} do not compare: {'; '.join(differing)}. See --anyway")
    rows = compare(old, new, args.relative, earlier.name, later.name, timed)
    comparisons = Comparisons(new.model, earlier.name, later.name, tuple(differing), tuple(rows), timed)
    makers = {
        "markdown": lambda: compared.as_markdown(comparisons),
        "junit": lambda: compared.as_junit(comparisons),
        "csv": lambda: compared.as_csv(comparisons),
        "json": lambda: json.dumps(compared.as_json(comparisons), indent=1) + "\n",
    }
    outputs.deliver(args, makers, lambda: compared.render(comparisons, console()))
    return comparisons.outcome.exit_code


class SpeedChange(NamedTuple):
    """The comparison of two speeds. The fields are ``speed``, ``reason`` and ``ratio`` of a Comparison."""

    verdict: str
    reason: str | None = None
    ratio: tuple[float, float, float] | None = None


def compare(
    old: Result, new: Result, relative: bool, old_name: str = "old", new_name: str = "new", timed: bool = True
) -> list[Comparison]:
    """Compare every subject of two results, in the order of the old one.

    relative: compare ratios to the baseline of each run, instead of seconds.
    old_name, new_name: the names of the results, for a subject that only one of them has.
    timed: whether speeds are compared.
    """
    before, after = (dict(zip(_names(result), result.rows)) for result in (old, new))
    both = {subject: (before[subject], after[subject]) for subject in after if subject in before}
    speeds = _speeds(both, (old, new), relative) if timed else {}
    comparisons = []
    for subject in dict.fromkeys([*before, *after]):
        if subject in both:
            comparisons.append(_comparison(subject, both[subject], speeds.get(subject)))
            continue
        only = f"only in {new_name if subject in after else old_name}"
        none = (None, None)
        comparisons.append(Comparison(subject, None, "-", None, only, none, none, worse=False, decided=False))
    return comparisons


def _speeds(
    both: Mapping[str, tuple[Row, Row]], results: tuple[Result, Result], relative: bool
) -> dict[str, SpeedChange]:
    """The comparison of the speeds of each subject. both: its rows in the results."""
    named = ((result, *each) for result in results for each in zip(_names(result), result.rows))
    baselines = {name for result, name, row in named if result.baseline(row) is row}
    changes: dict[str, timing.Estimate] = {}
    for subject, rows in both.items():
        if not (relative and subject in baselines):
            logs = _logs(rows[0], results[0], relative), _logs(rows[1], results[1], relative)
            if min(map(len, logs)) > 1:
                changes[subject] = timing.change(*logs)
    speeds = {name: SpeedChange(*claim, _interval(changes[name])) for name, claim in timing.verdicts(changes).items()}
    for subject, rows in both.items():
        if subject in speeds:
            continue
        if relative and subject in baselines and all(row.counted is not None for row in rows):
            speeds[subject] = SpeedChange(SpeedVerdict.BASELINE)
        else:
            speeds[subject] = SpeedChange(*_undecided(rows, results, relative))
    return speeds


def _comparison(subject: str, rows: tuple[Row, Row], speed: SpeedChange | None) -> Comparison:
    """One subject of both results. speed: None when speeds are not compared."""
    outputs, is_worse, known = _outputs(*rows)
    shown = speed or SpeedChange("-")
    return Comparison(
        subject=subject,
        ratio=shown.ratio,
        speed=shown.verdict,
        reason=shown.reason,
        outputs=outputs,
        verdicts=(rows[0].outcome, rows[1].outcome),
        errors=(_error(rows[0]), _error(rows[1])),
        worse=is_worse or shown.verdict == SpeedVerdict.SLOWER,
        decided=known and (speed is None or speed.verdict in DECIDED or _untimed(rows)),
    )


def differences(old: Result, new: Result, timed: bool = True) -> list[str]:
    """Sentences about the settings and properties of the machine that differ, with both values.

    Models, weights and inputs are compared by their content: the folders that they were in do not matter.
    timed: whether speeds are compared, too.
    """
    kinds = {result.settings.task == "check" for result in (old, new)}
    if timed and len(kinds) == 1 and _judged_alone(old) != _judged_alone(new):
        other = "has --no-timing" if old.settings.no_timing or new.settings.no_timing else "lacks --time"
        return [
            f"only {'the new' if _judged_alone(old) else 'the old'} result has speeds, because the other {other} (try "
            "--errors-only)"
        ]
    names = (*SETTINGS, *OF_SPEED) if timed else SETTINGS
    pairs = [
        ("task", ",".join(old.tasks), ",".join(new.tasks)),
        *((name, getattr(old.settings, name), getattr(new.settings, name)) for name in names),
        ("reference", _base(old.settings.reference), _base(new.settings.reference)),
        *((name, getattr(old.host, name), getattr(new.host, name)) for name in (HOST if timed else ())),
    ]
    same = old.settings.folder_digest and old.settings.folder_digest == new.settings.folder_digest
    if old.model != new.model and not same:
        return [f"they are of different models, {old.model!r} and {new.model!r}"]
    found = [f"{name} was {before!r}, is {after!r}" for name, before, after in pairs if before != after]
    for name, before, after in (
        ("weights", old.weights.digest, new.weights.digest),
        ("inputs", old.inputs.digest, new.inputs.digest),
    ):
        if before != after and not (name == "inputs" and None in (before, after)):
            found.append(f"the {name} were {before}, are {after}")
    return found


def _base(reference: str) -> str:
    """A framework, or the name of a reference file without its folder."""
    return reference.replace("\\", "/").rstrip("/").rpartition("/")[2]


def _judged_alone(result: Result) -> bool:
    """Whether nothing was to be timed: a check without --time, or a run with --no-timing."""
    checked = result.settings.task == "check" and all(row.speed is None for row in result.rows)
    return result.settings.no_timing or checked


def _machine(old: Result, new: Result) -> list[str]:
    """Sentences about a change of the machine's own speed, measured by a fixed piece of work in every round; [] without one."""
    before, after = old.noise.canary_seconds, new.noise.canary_seconds
    if _judged_alone(old) or _judged_alone(new):
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


def _names(result: Result) -> list[str]:
    """The names of the rows: the subject of each, and its task when the result has several tasks.

    Files of one name in several folders have their paths as subjects. The folder that all of them are in is left out.
    """
    paths = {row.subject for row in result.rows if os.path.isabs(row.subject)}
    common = os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else ""
    subjects = [os.path.relpath(row.subject, common) if row.subject in paths else row.subject for row in result.rows]
    return [subject + (f", {row.task}" if len(result.tasks) > 1 else "") for subject, row in zip(subjects, result.rows)]


def _samples(row: Row) -> list[Sample]:
    return timing.clean(row.counted.samples) if row.counted is not None else []


def _undecided(rows: tuple[Row, Row], results: tuple[Result, Result], relative: bool) -> tuple[str, str | None]:
    """(the text shown instead of a verdict on speed, why there is no verdict). rows: of the old result and of the new one."""
    for when, row, result in zip(("before", "now"), rows, results):
        if row.speed is None:
            return "-", None if _untimed(rows) else f"not timed {when}: {row.reason}"
        if not row.speed.counted:
            return SpeedVerdict.REFUSED, f"refused {when}: {row.speed.reason}"
        first = result.baseline(row)
        if relative and first.counted is None:
            why = first.speed.reason if first.speed else first.reason
            return SpeedVerdict.REFUSED, f"the baseline {first.subject} has no speed that counts {when}: {why}"
    return "-", "one process run is too few for a verdict on speed: run both with --effort standard"


def _outputs(old: Row, new: Row) -> tuple[str, bool, bool]:
    """(the verdicts on the outputs as text, whether the new one is worse, whether both are known)."""
    if old.error is None or new.error is None:
        return f"{old.outcome} → {new.outcome}", old.error is not None, False
    was, now = old.error.verdict, new.error.verdict
    says = "equal" if now <= Verdict.EQUAL else "warning" if now == Verdict.DRIFT else "different"
    worse = now > max(was, Verdict.EQUAL)  # IDENTICAL and EQUAL are as good as each other
    return (f"{says} ({was} → {now})" if was != now else f"{says} ({now})"), worse, True


def _untimed(rows: tuple[Row, Row]) -> bool:
    """Whether neither row was to be timed: it answers a question about the outputs alone."""
    return all(row.speed is None and row.status == "ok" for row in rows)


def _interval(change: timing.Estimate) -> tuple[float, float, float]:
    """The ratio of times and the two ends of its interval."""
    return math.exp(change.mean), math.exp(change.mean - change.half), math.exp(change.mean + change.half)


def _error(row: Row) -> float | None:
    return row.error.rel_rms if row.error else None
