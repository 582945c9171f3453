"""Does the harness tell the truth about time, on this machine? Each check knows beforehand what is to be found.

``xverify selftest timing`` runs them all. Processes, pipes, rounds, gate and statistics are those of every run; only the adapters
are planted (xverify/selftest/planted).
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from scipy import stats

from .. import host
from ..engine.api import run
from ..errors import SubjectError
from ..framework import discovery as frameworks
from ..reference.build import export_onnx
from ..results.records import Result, Row
from ..timing import plan as planning
from ..timing import statistics as timing
from ..workload.spec import find_model
from . import byhand
from .planted._work import SLOWER

HERE = Path(__file__).parent
OVERHEAD, OVERHEAD_SECONDS = 0.005, 2e-6
LAUNCHES = 3  # of a loop by hand, and as many more in doubt: where memory lies is luck, and may be 1% of a short call
SIMULATED = 5000
CHANCE = 0.01  # of a sound harness to fall outside of a count's limits
# What planting costs by itself: the interval of a slowdown that is exact by the clock is narrower than that.
EXACT = 0.001
SETTINGS: dict[str, Any] = {}  # of every run, besides
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # and no longer than its parent lives
Say = Callable[[str], None]


@dataclass(frozen=True)
class Check:
    """name, what was found, what is accepted. passed: None when the machine's noise let nothing be found."""

    name: str
    found: str
    accepted: str
    passed: bool | None


@contextmanager
def planted() -> Iterator[None]:
    """Within it, the planted adapters are known, here and in workers."""
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
    """Within it, when that is wanted, another process keeps the last core busy; subjects then run on the first."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) > 1:
        psutil.Process(process.pid).cpu_affinity(cores[-1:])
        SETTINGS["pin"] = cores[:1]
    try:
        yield
    finally:
        SETTINGS.clear()
        host.kill_group(process)
        process.wait()


def checks(runs: int, only: Sequence[str], say: Say) -> Iterator[Check]:
    """Run the checks and give each as it is done. runs: of each pair of equals. only: kinds of KINDS; () for all."""
    for kind, each in KINDS.items():
        if not only or kind in only:
            yield from each(runs, say)


def launch(*subjects: str, effort: str = "standard", cases: int = 1) -> Result:
    return run(HERE / "model", subjects, effort=effort, threads=1, cases=cases, **SETTINGS)


def equals(runs: int, say: Say) -> Iterator[Check]:
    """A against A: real runs, their intervals, their verdicts; then thousands of runs drawn from what those recorded."""
    rows: list[Row] = []
    logs: list[list[float]] = []
    for index in range(runs):
        result = launch("work", "same")
        rows.append(result.rows[1])
        logs += _residuals(result)
        say(f"A/A: run {index + 1} of {runs}: {_told(result.rows[1])}")
    judged = [row for row in rows if row.speed and row.speed.verdict not in ("REFUSED", None)]
    refused = f"; {len(rows) - len(judged)} of {len(rows)} runs refused"
    covered = sum(_covers(row, 1.0) for row in judged)
    false = sum(row.speed is not None and row.speed.verdict in ("FASTER", "SLOWER") for row in judged)
    least = int(stats.binom.ppf(CHANCE, len(judged), timing.CONFIDENCE)) if judged else 0
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
        false <= max(0.02 * len(judged), 0) if judged else None,
    )
    yield _simulated(logs)
    growth = [2 * math.exp(ratio) for row in rows for ratio in _growth(row)]
    middle = statistics.median(growth) if growth else math.nan
    yield Check(
        "time(2n) / time(n)", f"{middle:.3f}", "2.00 ± 5%", abs(middle / 2 - 1) <= timing.VANISHED if growth else None
    )


def _simulated(launches: Sequence[Sequence[float]]) -> Check:
    """Runs of launches drawn from the recorded ones. Which of two equals comes first is a toss, so each counts with either sign,
    and the truth is a ratio of 1.

    Real launches have longer tails than a normal distribution; Student's interval then covers more than 95%, which costs launches
    and not truth.
    """
    name, accepted = f"A/A, {SIMULATED:,} simulated runs: the interval covers 1", "94% to 98%"
    if len(launches) < 20:
        return Check(name, f"{len(launches)} launches recorded", accepted, None)
    generator = random.Random(0)
    effort = planning.EFFORTS["standard"]
    covered = 0
    for _ in range(SIMULATED):
        medians: list[float] = []
        while not timing.enough([medians], effort):
            residuals = generator.choice(launches)
            sign = generator.choice((-1, 1))
            medians.append(sign * statistics.median(generator.choices(residuals, k=len(residuals))))
        found = timing.interval(medians)
        covered += found.low <= 0.0 <= found.high
    share = covered / SIMULATED
    return Check(name, f"{share:.1%} ({len(launches)} recorded launches)", accepted, 0.94 <= share <= 0.98)


def slower(runs: int, say: Say) -> Iterator[Check]:
    """A slowdown of 5%, by spinning and by sleeping."""
    runs = max(1, runs // 5)
    rows: dict[str, list[Row]] = {"spinning": [], "sleeping": []}
    for index in range(runs):
        result = launch("paced", *rows)
        for row in result.rows[1:]:
            rows[row.subject].append(row)
        say(f"slower by 5%: run {index + 1} of {runs}: {'; '.join(map(_told, result.rows[1:]))}")
    for subject, found in rows.items():
        judged = [row for row in found if row.speed and row.speed.verdict not in ("REFUSED", None)]
        seen = sum(row.speed is not None and row.speed.verdict == "SLOWER" for row in judged)
        covered = sum(_covers(row, SLOWER, EXACT) for row in judged)
        least = int(stats.binom.ppf(CHANCE, len(judged), timing.CONFIDENCE)) if judged else 0
        refused = len(found) - len(judged)
        yield Check(
            f"slower by 5%, {subject}",
            f"SLOWER in {seen} of {len(judged)}, interval covers 1.05 in {covered}; {refused} of {len(found)} refused",
            f"SLOWER every time, {least} or more cover, to {EXACT:.1%}",
            seen == len(judged) and covered >= least if judged else None,
        )


def cheats(runs: int, say: Say) -> Iterator[Check]:
    """Adapters that look fast because they do not do, or do not await, their work."""
    for subject, how, proof in (
        ("unwaited", "its wait does nothing", "does not wait"),
        ("cached", "it returns a cached output", "does not compute the same"),
        ("remembering", "it computes an input once a block", "WORK_VANISHED"),
    ):
        speed = launch("work", subject, effort="quick", cases=4).rows[1].speed
        reason = (speed.reason or "") if speed else ""
        say(f"{subject}: {speed.verdict if speed else None}: {reason}")
        caught = speed is not None and speed.verdict == "REFUSED" and proof in reason
        yield Check(f"an adapter that cheats: {how}", "caught" if caught else f"missed: {reason}", "caught", caught)


def overhead(runs: int, say: Say) -> Iterator[Check]:
    """Each installed framework beside a loop written by hand."""
    for model, task in byhand.CASES:
        for name in byhand.TRAINING if task == "train" else byhand.LOOPS:
            check = _beside_a_loop(name, model, task)
            say(f"{check.name}: {check.found}")
            yield check


def _beside_a_loop(name: str, model: str, task: str) -> Check:
    """The median of some processes is accepted. One that is not is told again from twice as many; it fails if it is so in each."""
    title = f"overhead, {name} {model}" + (", training" if task == "train" else "")
    accepted = f"within ±{OVERHEAD:.1%}, or {OVERHEAD_SECONDS * 1e6:g} µs a call"
    adapter = frameworks.load(name)
    if host.missing(adapter):
        return Check(title, "not installed", accepted, None)
    with tempfile.TemporaryDirectory() as folder:
        if adapter.runs_export:
            try:
                export_onnx(find_model(model), Path(folder), byhand.ITEMS[task])
            except SubjectError as error:
                return Check(title, str(error), accepted, None)
        pin = ",".join(map(str, SETTINGS.get("pin", ())))
        command = [sys.executable, "-m", "xverify.selftest.byhand", name, model, "1", folder, task, pin]
        settings = {**os.environ, **adapter.variables(1, "cpu"), "TMPDIR": folder}
        launches: list[_Launch] = []
        while not launches or (len(launches) < 2 * LAUNCHES and not _Launch.typical(launches).inside):
            for _ in range(LAUNCHES):
                done = subprocess.run(command, capture_output=True, text=True, env=settings, check=False)
                if done.returncode:
                    return Check(title, done.stderr.strip().splitlines()[-1], accepted, None)
                launches.append(_Launch.of(**json.loads(done.stdout)))
    typical = _Launch.typical(launches)
    found = f"ratio {typical.ratio:.4f}, {typical.more * 1e6:+.2f} µs a call of {typical.call:.2g} s"
    if typical.inside:
        return Check(title, found, accepted, True)
    ratios = sorted(launch.ratio for launch in launches)
    found += f"; by process {', '.join(f'{ratio:.4f}' for ratio in ratios)}"
    alike = not any(launch.inside for launch in launches) and (ratios[0] > 1 or ratios[-1] < 1)
    return Check(title, found, accepted, False if alike else None)


class _Launch(NamedTuple):
    """Blocks in pairs, of one process: median ratio to the loop by hand, seconds more a call, seconds a call by hand."""

    ratio: float
    more: float
    call: float

    @classmethod
    def of(cls, ours: Sequence[float], by_hand: Sequence[float]) -> _Launch:
        pairs = list(zip(ours, by_hand))
        ratio = math.exp(statistics.median(math.log(a / b) for a, b in pairs))
        return cls(ratio, statistics.median(a - b for a, b in pairs), statistics.median(by_hand))

    @classmethod
    def typical(cls, launches: Sequence[_Launch]) -> _Launch:
        return cls(*(statistics.median(values) for values in zip(*launches)))

    @property
    def inside(self) -> bool:
        return abs(self.ratio - 1) <= OVERHEAD or abs(self.more) <= OVERHEAD_SECONDS


KINDS: dict[str, Callable[[int, Say], Iterator[Check]]] = {
    "cheats": cheats,
    "slower": slower,
    "equals": equals,
    "overhead": overhead,
}


def _residuals(result: Result) -> list[list[float]]:
    """For each launch the log-ratios of the second row to the first, of rounds without noise."""
    speeds = [row.speed for row in result.rows]
    quiet = [[sample for sample in speed.samples if not sample.dropped] if speed else [] for speed in speeds]
    return list(timing.log_ratios(quiet[1], quiet[0]).values())


def _covers(row: Row, ratio: float, slack: float = 0.0) -> bool:
    assert row.speed is not None
    low, high = row.speed.ratio_ci
    return low is not None and high is not None and low - slack <= ratio <= high + slack


def _growth(row: Row) -> list[float]:
    """log of seconds a call in blocks of 2n over those in blocks of n, a launch each."""
    found = []
    for samples in timing.by_launch(timing.clean(row.speed.samples if row.speed else ())).values():
        least = min(sample.calls for sample in samples)
        single = [sample.seconds / sample.calls for sample in samples if sample.calls == least]
        double = [sample.seconds / sample.calls for sample in samples if sample.calls == 2 * least]
        if single and double:
            found.append(math.log(statistics.median(double) / statistics.median(single)))
    return found


def _told(row: Row) -> str:
    speed = row.speed
    if speed is None:
        return f"{row.subject} {row.status}"
    if speed.verdict == "REFUSED":
        return f"{row.subject} REFUSED ({speed.reason})"
    low, high = speed.ratio_ci
    return f"{row.subject} {speed.verdict} {speed.ratio:.4f} ({low:.4f}–{high:.4f}, {len(speed.launches)} launches)"
