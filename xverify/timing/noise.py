"""The noise gate: was the machine a block's own? Read from /proc, between blocks, while no clock runs.

A block is noisy when

* its process waited for a core over 5% of the time (run-queue delay, /proc/PID/task/*/schedstat) while other processes, or the
  hypervisor, used over 5% of one (/proc/stat). Both: a framework with more threads than cores delays itself, which is part of its
  speed; another process beside an idle core delays nobody;
* or the hypervisor took over 5% of a core (steal).

A round is noisy, besides, when a fixed piece of work in this process, the canary, takes 5% longer or shorter than it usually does.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import statistics
import time
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..results.records import NoiseSummary

LIMIT = 0.05
MAX_DROPPED = 0.3  # share of rounds that noise may take
TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01
WINDOW_SECONDS = 1.0  # over which /proc/stat's ticks are counted; in a block there are few
WINDOW_TICKS = 4  # that prove another process; its counter may be two off on two cores
# Digests compute in registers, in one thread: what they take does not depend on where in memory a process happens to work.
CANARY, CANARY_REPEATS = (
    bytes(2**14),
    40,
)  # of some 10 microseconds; the fastest counts, since a single one meets interrupts


@dataclass(frozen=True)
class Moment:
    """What /proc said at one moment: seconds. tasks: thread -> (running, waiting for a core)."""

    at: float
    tasks: dict[str, tuple[float, float]]
    busy: float
    steal: float
    own: float


def look(pid: int) -> Moment:
    """Where this process and the machine stand; what the system does not tell stays empty."""
    tasks: dict[str, tuple[float, float]] = {}
    folder = f"/proc/{pid}/task"
    with contextlib.suppress(OSError):
        for task in os.listdir(folder):
            with contextlib.suppress(OSError, ValueError), open(f"{folder}/{task}/schedstat", "rb") as file:
                running, waiting, _ = file.read().split()
                tasks[task] = int(running) / 1e9, int(waiting) / 1e9
    busy = steal = 0.0
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/stat", "rb") as file:
        ticks = [int(value) for value in file.readline().split()[1:]]
        busy, steal = TICK * (sum(ticks[:3]) + sum(ticks[5:7])), TICK * ticks[7]
    return Moment(time.perf_counter(), tasks, busy, steal, time.process_time())


@dataclass(frozen=True)
class Block:
    """A block's shares of its wall-clock time. delay: of its most delayed thread; others, steal: cores that were used elsewhere."""

    delay: float
    others: float
    steal: float

    @property
    def reason(self) -> str | None:
        """Why it is noisy; None when it is not."""
        if self.steal > LIMIT:
            return "steal"
        if self.delay > LIMIT and self.others + self.steal > LIMIT:
            return "other processes"
        return None


class Gate:
    """Judges blocks and rounds as they come, and keeps count of what it saw."""

    def __init__(self) -> None:
        self.recent: deque[tuple[float, float, float]] = deque()  # (seconds, of others, of steal) of the last blocks
        self.canaries: list[float] = []
        self.rounds = 0
        self.dropped = 0
        self.reasons: Counter[str] = Counter()
        self.most = {"delay": 0.0, "others": 0.0, "steal": 0.0, "canary": 0.0}
        self.processes = _cpu_by_process()
        self.since = time.perf_counter()

    def block(self, before: Moment, after: Moment) -> str | None:
        """Why this block is noisy; None when it is not."""
        wall = after.at - before.at
        ran = sum(run - before.tasks.get(task, (0.0, 0.0))[0] for task, (run, _) in after.tasks.items())
        delay = max(
            (wait - before.tasks.get(task, (0.0, 0.0))[1] for task, (_, wait) in after.tasks.items()), default=0.0
        )
        others = after.busy - before.busy - ran - (after.own - before.own)
        self.recent.append((wall, others, after.steal - before.steal))
        while len(self.recent) > 1 and sum(each[0] for each in self.recent) - self.recent[0][0] > WINDOW_SECONDS:
            self.recent.popleft()
        span = sum(each[0] for each in self.recent)
        # Below so many ticks nothing is proven: a counter that moves in steps of 10 ms says little of one block.
        shares = [
            total / span if total >= WINDOW_TICKS * TICK else 0.0
            for total in (sum(each[1] for each in self.recent), sum(each[2] for each in self.recent))
        ]
        found = Block(delay / wall, *shares)
        for name in ("delay", "others", "steal"):
            self.most[name] = max(self.most[name], getattr(found, name))
        return found.reason

    def canary(self) -> str | None:
        """Do the fixed work; why the round is noisy, or None."""
        best = math.inf
        for _ in range(CANARY_REPEATS):
            start = time.perf_counter()
            hashlib.sha256(CANARY).digest()
            best = min(best, time.perf_counter() - start)
        self.canaries.append(best)
        if len(self.canaries) < 4:
            return None
        drift = abs(best / statistics.median(self.canaries) - 1)
        self.most["canary"] = max(self.most["canary"], drift)
        return "the machine's speed" if drift > LIMIT else None

    def round(self, reasons: set[str]) -> str | None:
        """Count a round; why it is to be dropped, or None."""
        self.rounds += 1
        self.dropped += bool(reasons)
        self.reasons.update(reasons)
        return ", ".join(sorted(reasons)) or None

    def culprit(self) -> str | None:
        """The process that used most of a core since the gate was made, in words; none of this run's own."""
        seconds = time.perf_counter() - self.since
        own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
        found = [
            (used - self.processes.get(pid, (0.0, ""))[0], pid, name)
            for pid, (used, name) in _cpu_by_process().items()
            if pid not in own
        ]
        used, pid, name = max(found, default=(0.0, 0, ""))
        if used / seconds < LIMIT:
            return None
        return f"another process uses {used / seconds:.1f} of a core: {name} (process {pid})"


class Seen:
    """What the gates of all launches saw."""

    def __init__(self) -> None:
        self.rounds = self.dropped = 0
        self.reasons: Counter[str] = Counter()
        self.most: dict[str, float] = {}
        self.culprit: str | None = None
        self.canaries: list[float] = []

    def add(self, gate: Gate) -> None:
        self.canaries.append(statistics.median(gate.canaries))
        self.rounds += gate.rounds
        self.dropped += gate.dropped
        self.reasons.update(gate.reasons)
        self.most = {name: max(value, self.most.get(name, 0.0)) for name, value in gate.most.items()}
        if gate.dropped:
            self.culprit = gate.culprit() or self.culprit

    def refusal(self) -> str | None:
        """Why this machine is too noisy to be timed on, and what to do; None when it is not."""
        if not self.rounds or self.dropped / self.rounds <= MAX_DROPPED:
            return None
        why = ", ".join(f"{reason} in {count}" for reason, count in self.reasons.most_common())
        remedy = (
            f"{self.culprit}: stop it, or let it end"
            if self.culprit
            else "nothing here explains it: another time, or machine"
        )
        return f"{self.dropped} of {self.rounds} rounds were noisy ({why}), the limit is {MAX_DROPPED:.0%}; {remedy}"

    def describe(self) -> NoiseSummary:
        """The record for the result file."""
        return NoiseSummary(
            rounds=self.rounds,
            dropped=self.dropped,
            reasons=dict(self.reasons),
            most=self.most,
            culprit=self.culprit,
            refusal=self.refusal(),
            canary_seconds=tuple(self.canaries),
            limit=LIMIT,
            missing=tuple(missing()),
        )

    def restore(self, described: NoiseSummary) -> None:
        """Go on from what ``describe`` gave."""
        self.rounds, self.dropped = described.rounds, described.dropped
        self.reasons, self.most = Counter(described.reasons), dict(described.most)
        self.culprit, self.canaries = described.culprit, list(described.canary_seconds)


def _cpu_by_process() -> dict[int, tuple[float, str]]:
    """pid -> (seconds of a core that it has used, name)."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error), process.oneshot():
            times = process.cpu_times()
            found[process.pid] = times.user + times.system, process.name()
    return found


def missing() -> list[str]:
    """The signals that this system does not give."""
    files = {"run-queue delay": "/proc/self/schedstat", "other processes' use and steal": "/proc/stat"}
    return [signal for signal, file in files.items() if not Path(file).exists()]
