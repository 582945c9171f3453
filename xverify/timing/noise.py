"""Finds timed blocks that other processes or the hypervisor disturbed, from counters in /proc that are read between blocks.

A block is noisy in two cases:

* Its process waited for a core during more than 5% of the time (run-queue delay, /proc/PID/task/*/schedstat), while other
  processes or the hypervisor used more than 5% of a core (/proc/stat). Both conditions are needed: a framework with more threads
  than cores delays itself, which belongs to its speed, and another process on an idle core delays nobody.
* The hypervisor took more than 5% of a core (steal).

A round is noisy when one of its blocks is, or when a fixed piece of work in this process (the canary) takes 5% longer or shorter
than its median.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import statistics
import time
from collections import Counter, deque
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from .. import host
from ..results.records import NoiseSummary

LIMIT = 0.05  # the 5% of this description
SPEED_CHANGED = "the machine's speed"  # the reason of a round in which the canary differs from its median
MAX_DROPPED = 0.3  # greatest share of noisy rounds for which speeds are still judged
# Seconds of one unit of /proc/stat.
TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01
WINDOW_SECONDS = 1.0  # ticks of /proc/stat are counted over this time, because one block has only a few
WINDOW_TICKS = 4  # least number of ticks that proves another process; on two cores the counter may be wrong by two
# A digest computes in registers and in one thread, so its time does not depend on where in memory the process works.
CANARY = bytes(2**14)  # about 10 microseconds of work
CANARY_REPEATS = 40  # the fastest repetition counts, because an interrupt may disturb a single one


@dataclass(frozen=True)
class Moment:
    """Counters at one moment, all in seconds.

    at: the clock. tasks: thread -> (running, waiting for a core) since it started, of the processes that are timed.
    busy, steal: use of all cores by all processes, and by the hypervisor, since the machine started.
    own: processor time of the process that reads the counters.
    """

    at: float
    tasks: dict[str, tuple[float, float]]
    busy: float
    steal: float
    own: float


def look(*pids: int) -> Moment:
    """Read the counters of these processes and of the machine. Counters that the system does not offer are empty or zero."""
    tasks: dict[str, tuple[float, float]] = {}
    for folder in (f"/proc/{pid}/task" for pid in pids):
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


def used(before: Moment, after: Moment) -> tuple[float, float, float, float]:
    """Seconds between two moments: (clock, waiting of the thread that waited longest, use by others, use by the hypervisor)."""
    ran = sum(run - before.tasks.get(task, (0.0, 0.0))[0] for task, (run, _) in after.tasks.items())
    waits = (wait - before.tasks.get(task, (0.0, 0.0))[1] for task, (_, wait) in after.tasks.items())
    others = after.busy - before.busy - ran - (after.own - before.own)
    return after.at - before.at, max(waits, default=0.0), others, after.steal - before.steal


def explained(before: Moment, after: Moment) -> float:
    """Seconds between two moments that waiting of any thread for a core, and the hypervisor, can have taken."""
    waits = math.fsum(wait - before.tasks.get(task, (0.0, 0.0))[1] for task, (_, wait) in after.tasks.items())
    return waits + max(0.0, after.steal - before.steal)


def _reason(delay: float, others: float, steal: float) -> str | None:
    """Why a block is noisy; None when it is not.

    All are shares of its wall-clock time: waiting of the thread that waited longest, use of cores by other processes, and by the
    hypervisor.
    """
    if steal > LIMIT:
        return "steal"
    return "other processes" if delay > LIMIT and others + steal > LIMIT else None


class Gate:
    """Judges the blocks and rounds of one process run, and counts what it finds."""

    def __init__(self) -> None:
        self.recent: deque[tuple[float, float, float]] = deque()  # seconds, others, steal of the last blocks
        self.canaries: list[float] = []
        self.rounds = 0
        self.dropped = 0
        self.reasons: Counter[str] = Counter()
        self.most = {"delay": 0.0, "others": 0.0, "steal": 0.0, "canary": 0.0}
        self.processes = _cpu_by_process()
        self.since = time.perf_counter()

    def block(self, before: Moment, after: Moment) -> str | None:
        """Why this block is noisy; None when it is not."""
        wall, delay, others, steal = used(before, after)
        self.recent.append((wall, others, steal))
        shares = (delay / wall, *self._recent_shares())
        for name, share in zip(("delay", "others", "steal"), shares):
            self.most[name] = max(self.most[name], share)
        return _reason(*shares)

    def _recent_shares(self) -> tuple[float, float]:
        """The shares of others and of steal in the blocks of the last WINDOW_SECONDS."""
        seconds, others, steal = map(sum, zip(*self.recent))
        while len(self.recent) > 1 and seconds - self.recent[0][0] > WINDOW_SECONDS:
            self.recent.popleft()
            seconds, others, steal = map(sum, zip(*self.recent))
        # The counter moves in steps of 10 ms, so a few ticks prove nothing about a block.
        least = WINDOW_TICKS * TICK
        return (others / seconds if others >= least else 0.0), (steal / seconds if steal >= least else 0.0)

    def canary(self) -> str | None:
        """Time the fixed piece of work. Returns why the round is noisy; None when it is not."""
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
        return SPEED_CHANGED if drift > LIMIT else None

    def round(self, reasons: set[str]) -> str | None:
        """Count a round. reasons: why its blocks are noisy. Returns why the round is dropped; None when it counts."""
        self.rounds += 1
        self.dropped += bool(reasons)
        self.reasons.update(reasons)
        return ", ".join(sorted(reasons)) or None

    @property
    def noisy(self) -> bool:
        """Whether too many rounds were noisy."""
        return self.dropped > MAX_DROPPED * self.rounds

    def culprit(self) -> str | None:
        """A sentence on the processor time that other processes took since this gate was made, and which one took most of it.

        Processes of this run are left out. None when no other process used more than LIMIT of a core.
        """
        seconds = time.perf_counter() - self.since
        own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
        found = [
            (used - self.processes.get(pid, (0.0, ""))[0], name)
            for pid, (used, name) in _cpu_by_process().items()
            if pid not in own
        ]
        used, name = max(found, default=(0.0, ""))
        if used / seconds < LIMIT:
            return None
        every = math.fsum(max(0.0, each) for each, _ in found) / seconds
        load = f" (load {os.getloadavg()[0]:.1f})" if hasattr(os, "getloadavg") else ""
        return f"other processes took {every:.1f} of {host.cores()} cores, most of it {name}{load}"


class Seen:
    """What the gates of all process runs found."""

    def __init__(self) -> None:
        self.found = NoiseSummary(limit=LIMIT)

    def add(self, gate: Gate) -> None:
        """Add what the gate of one process run found."""
        before = self.found
        self.found = replace(
            before,
            rounds=before.rounds + gate.rounds,
            dropped=before.dropped + gate.dropped,
            reasons=dict(Counter(before.reasons) + gate.reasons),
            most={name: max(value, before.most.get(name, 0.0)) for name, value in gate.most.items()},
            culprit=(gate.culprit() if gate.dropped else None) or before.culprit,
            canary_seconds=(*before.canary_seconds, statistics.median(gate.canaries)),
        )

    def refusal(self) -> str | None:
        """Why the machine is too noisy for a judgement of speed, and what to do; None when it is quiet enough."""
        noise = self.found
        if not noise.rounds or noise.dropped / noise.rounds <= MAX_DROPPED:
            return None
        why = ", ".join(f"{reason} in {count}" for reason, count in Counter(noise.reasons).most_common())
        taken = [noise.culprit or "no process of this system explains it"]
        if noise.most.get("steal"):
            taken.append(f"the hypervisor took up to {noise.most['steal']:.0%} of a core")
        return f"{noise.dropped} of {noise.rounds} rounds were noisy ({why}), the limit is {MAX_DROPPED:.0%}; {', '.join(taken)}"

    def describe(self) -> NoiseSummary:
        """The record for the result file."""
        return replace(self.found, refusal=self.refusal(), missing=tuple(missing()))

    def restore(self, described: NoiseSummary) -> None:
        """Go on with the counts that ``describe`` returned."""
        self.found = replace(described, limit=LIMIT)


def _cpu_by_process() -> dict[int, tuple[float, str]]:
    """pid -> (seconds of processor time, name), of every process that may be read."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error), process.oneshot():
            times = process.cpu_times()
            found[process.pid] = times.user + times.system, process.name()
    return found


def missing() -> list[str]:
    """The signals that this system does not offer."""
    files = {"run-queue delay": "/proc/self/schedstat", "other processes' use and steal": "/proc/stat"}
    return [signal for signal, file in files.items() if not Path(file).exists()]
