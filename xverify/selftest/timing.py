"""Checks of the timing engine on this machine, with adapters whose speed is known beforehand.

``xverify selftest timing`` runs all of them. Processes, pipes, rounds, the detection of noise and the statistics are those of
every run; only the adapters are special (xverify/selftest/planted).
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from .. import host
from ..engine.api import run
from ..interpreter import program
from ..results.records import Result, Row
from ..timing import statistics as timing
from ..workload.options import ALLOCATORS
from . import byhand
from .alternation import compare_with_script
from .check import Check, Say
from .overhead import compare_with_loop
from .planted._work import PACE, SLOWER
from .simulation import CHANCE, simulated_checks

HERE = Path(__file__).parent
# The planted slowdown is exact only to this relative amount, and a measured interval may be narrower.
EXACT = 0.001
BATCH = 4  # items of a call of the selftest's model
HOLDS = 0.95  # share of the stated bounds that must hold
# The cores that subjects may use; [] for all. ``busy`` sets it.
CORES: list[int] = []
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends when its parent ends
CHEATS = (
    ("unwaited", "its wait does nothing", "does not wait"),
    ("cached", "it returns a cached output", "does not compute the same"),
    ("remembering", "it computes an input once a block", "WORK_VANISHED"),
)  # adapter, what it does, what the reason of the refusal contains


@contextmanager
def planted() -> Iterator[None]:
    """Make the planted adapters known to this process and to its workers."""
    before = os.environ.get("XVERIFY_FRAMEWORKS")
    os.environ["XVERIFY_FRAMEWORKS"] = os.pathsep.join(filter(None, [str(HERE / "planted"), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["XVERIFY_FRAMEWORKS"]
        else:
            os.environ["XVERIFY_FRAMEWORKS"] = before


@contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """Keep the last core busy with another process, and let subjects use the first. wanted: False changes nothing."""
    if not wanted:
        yield
        return
    cores = _cores()
    with _occupied(cores[-1:] if len(cores) > 1 else []):
        CORES[:] = cores[:1] if len(cores) > 1 else []
        try:
            yield
        finally:
            CORES.clear()


def _cores() -> list[int]:
    """The cores that this process may use; [] where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@contextmanager
def _occupied(cores: list[int]) -> Iterator[None]:
    """Another process that never waits, on these cores; on any where there is none."""
    process = subprocess.Popen(program(sys.executable, BUSY), start_new_session=True)
    try:
        if cores:
            psutil.Process(process.pid).cpu_affinity(cores)
        yield
    finally:
        host.kill_group(process)
        process.wait()


def checks(runs: int, only: Sequence[str], say: Say) -> Iterator[Check]:
    """Run the checks, and yield each result as soon as it is known.

    runs: number of runs of a pair of equal adapters. only: names of KINDS; () for all. say: reports progress.
    """
    for kind, check in KINDS.items():
        if not only or kind in only:
            yield from check(runs, say)


def time_adapters(*subjects: str, effort: str = "standard", cases: int = 1, **settings: Any) -> Result:  # as run's
    """Run the model of the selftest on planted adapters."""
    return run(HERE / "model", subjects, effort=effort, threads=1, cases=cases, **{"pin": CORES, **settings})


def equals(runs: int, say: Say) -> Iterator[Check]:
    """Compare two equal adapters: real runs with their intervals and verdicts, and runs simulated from their samples."""
    rows: list[Row] = []
    log_ratios: list[list[float]] = []
    for index in range(runs):
        result = time_adapters("work", "same")
        rows.append(result.rows[1])
        log_ratios += _log_ratios(result)
        say(f"A/A: run {index + 1} of {runs}: {_summary(result.rows[1])}")
    judged = _judged(rows)
    refused = f"; {len(rows) - len(judged)} of {len(rows)} runs refused"
    covered = sum(_covers(row, 1.0) for row in judged)
    false = sum(row.speed is not None and row.speed.verdict in ("FASTER", "SLOWER") for row in judged)
    least = _least_covering(len(judged))
    yield Check(
        "A/A, real processes: the interval covers 1",
        f"{covered} of {len(judged)}{refused}",
        f"{least} or more (chance {CHANCE:.0%} for 95%)",
        covered >= least if judged else None,
    )
    yield Check(
        "A/A, real processes: false FASTER or SLOWER",
        f"{false} of {len(judged)}{refused}",
        "2 in 100 at most",
        false <= 0.02 * len(judged) if judged else None,
    )
    yield from simulated_checks(log_ratios)
    yield _doubling(rows)


def _doubling(rows: Sequence[Row]) -> Check:
    """Check that blocks of twice the calls take twice as long."""
    growth = [2 * math.exp(log) for row in rows for log in _growth(row)]
    middle = statistics.median(growth) if growth else math.nan
    passed = abs(middle / 2 - 1) <= timing.VANISHED if growth else None
    return Check("time(2n) / time(n)", f"{middle:.3f}", "2.00 ± 5%", passed)


def slower(runs: int, say: Say) -> Iterator[Check]:
    """Detect a slowdown of 5%, once by a busy loop and once by sleeping."""
    runs = max(1, runs // 5)
    rows: dict[str, list[Row]] = {"spinning": [], "sleeping": []}
    for index in range(runs):
        result = time_adapters("paced", *rows)
        for row in result.rows[1:]:
            rows[row.subject].append(row)
        say(f"slower by 5%: run {index + 1} of {runs}: {'; '.join(map(_summary, result.rows[1:]))}")
    for subject, found in rows.items():
        judged = _judged(found)
        detected = sum(row.speed is not None and row.speed.verdict == "SLOWER" for row in judged)
        covered = sum(_covers(row, SLOWER, EXACT) for row in judged)
        least = _least_covering(len(judged))
        refused = len(found) - len(judged)
        yield Check(
            f"slower by 5%, {subject}",
            f"SLOWER in {detected} of {len(judged)}, interval covers 1.05 in {covered}; {refused} of {len(found)} refused",
            f"SLOWER every time, {least} or more cover, to {EXACT:.1%}",
            detected == len(judged) and covered >= least if judged else None,
        )


def cheats(runs: int, say: Say) -> Iterator[Check]:
    """Detect adapters that seem fast because they do not do their work, or do not wait for it."""
    for subject, how, proof in CHEATS:
        speed = time_adapters("work", subject, effort="quick", cases=4).rows[1].speed
        reason = (speed.reason or "") if speed else ""
        say(f"{subject}: {speed.verdict if speed else None}: {reason}")
        caught = speed is not None and speed.verdict == "REFUSED" and proof in reason
        yield Check(f"an adapter that cheats: {how}", "caught" if caught else f"missed: {reason}", "caught", caught)


def bounds(runs: int, say: Say) -> Iterator[Check]:
    """Bound speeds beside two processes on the core of the subject: a speed that is known, and one that is measured before."""
    core = (CORES or _cores())[:1]
    for subject in ("paced", "work"):
        kept: list[float] = []
        for index in range(runs):
            truth = None if subject == "work" else BATCH / PACE
            if truth is None:
                speed = time_adapters(subject, effort="quick", pin=core, warmup=10, rerun=80).rows[0].speed
                truth = speed.fps if speed is not None and speed.counted else None
            with ExitStack() as stack:
                for _ in range(2):
                    stack.enter_context(_occupied(core))
                speed = time_adapters(subject, effort="quick", pin=core, warmup=10, rerun=40).rows[0].speed
            stated = speed.at_least if speed is not None else None
            if truth is not None and stated is not None:
                kept.append(stated / truth)
            say(f"bounds: run {index + 1} of {runs}: {subject} at least {stated} items/s, alone {truth}")
        held = sum(ratio <= 1 for ratio in kept)
        middle = f", {statistics.median(kept):.2f} of the speed alone in the middle" if kept else ""
        yield Check(
            f"at least N a second on a busy core, {subject}",
            f"holds in {held} of {len(kept)}{middle}; {runs - len(kept)} of {runs} runs have no bound or no speed alone",
            "19 in 20",
            held >= HOLDS * len(kept) if kept else None,
        )


def overhead(runs: int, say: Say) -> Iterator[Check]:
    """Compare the harness with a loop written by hand, for each installed framework."""
    cases = ((name, model, task) for model, task in byhand.CASES for name in byhand.BY_TASK[task])
    yield from _told((compare_with_loop(*case, CORES) for case in cases), say)


def script(runs: int, say: Say) -> Iterator[Check]:
    """Compare the harness with a script in a process of its own, for each policy of memory allocation."""
    yield from _told((compare_with_script(policy, CORES) for policy in ALLOCATORS), say)


def _told(found: Iterator[Check], say: Say) -> Iterator[Check]:
    """The same checks, each of which is reported."""
    for check in found:
        say(f"{check.name}: {check.found}")
        yield check


KINDS: dict[str, Callable[[int, Say], Iterator[Check]]] = {
    "cheats": cheats,
    "slower": slower,
    "bounds": bounds,
    "equals": equals,
    "overhead": overhead,
    "script": script,
}


def _judged(rows: Sequence[Row]) -> list[Row]:
    """The rows whose speed has a verdict other than REFUSED."""
    return [row for row in rows if row.speed and row.speed.verdict not in ("REFUSED", None)]


def _least_covering(count: int) -> int:
    """The least number of ``count`` correct 95% intervals that cover the truth, except with probability CHANCE."""
    from scipy import stats  # late: `xverify --help` and `list` need no statistics

    return int(stats.binom.ppf(CHANCE, count, timing.CONFIDENCE)) if count else 0


def _log_ratios(result: Result) -> list[list[float]]:
    """The log-ratios of the second row to the first in rounds without noise, for each process run."""
    speeds = [row.speed for row in result.rows]
    quiet = [[sample for sample in speed.samples if not sample.dropped] if speed else [] for speed in speeds]
    return list(timing.log_ratios(quiet[1], quiet[0]).values())


def _covers(row: Row, ratio: float, slack: float = 0.0) -> bool:
    """Whether the interval of a row's ratio, extended by ``slack`` on both sides, contains this ratio."""
    assert row.speed is not None
    low, high = row.speed.ratio_ci
    return low is not None and high is not None and low - slack <= ratio <= high + slack


def _growth(row: Row) -> list[float]:
    """log(seconds per call in blocks of 2n calls / seconds per call in blocks of n calls), for each process run."""
    found = []
    for samples in timing.by_process_run(timing.clean(row.speed.samples if row.speed else ())).values():
        least = min(sample.calls for sample in samples)
        single = [sample.seconds / sample.calls for sample in samples if sample.calls == least]
        double = [sample.seconds / sample.calls for sample in samples if sample.calls == 2 * least]
        if single and double:
            found.append(math.log(statistics.median(double) / statistics.median(single)))
    return found


def _summary(row: Row) -> str:
    """One line about the speed of a row."""
    speed = row.speed
    if speed is None:
        return f"{row.subject} {row.status}"
    if speed.verdict == "REFUSED":
        return f"{row.subject} REFUSED ({speed.reason})"
    low, high = speed.ratio_ci
    return f"{row.subject} {speed.verdict} {speed.ratio:.4f} ({low:.4f}–{high:.4f}, {len(speed.launches)} process runs)"
