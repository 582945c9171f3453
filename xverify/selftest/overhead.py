"""Compares the harness with a loop written by hand, for one framework and one model, in separate processes."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from .. import host
from ..errors import SubjectError
from ..framework import discovery as frameworks
from ..processes.command import Command, worker_command
from ..reference.exporting import export_onnx
from ..workload.spec import find_model
from . import byhand
from .check import Check

OVERHEAD, OVERHEAD_SECONDS = 0.005, 2e-6  # accepted difference: relative, or in seconds per call
# Number of processes. Where arrays lie in memory differs from process to process, and changes a short call by up to 1%. When the
# result is not accepted, as many are added, up to MOST_PROCESSES.
PROCESSES = 3
MOST_PROCESSES = 12
TITLES = {
    "forward": "",
    "train": ", training",
    "recipe": ", training with clipping and two micro-batches",
    "own": ", a train_step with clipping and two micro-batches",
}


@dataclass(frozen=True)
class Overhead:
    """Medians over pairs of blocks, one by the harness and one by the loop written by hand.

    ratio: time of the harness divided by time of the loop. more: additional seconds per call of the harness.
    call: seconds per call of the loop.
    """

    ratio: float
    more: float
    call: float

    @classmethod
    def of_process(cls, ours: Sequence[float], by_hand: Sequence[float]) -> Overhead:
        """The overhead in one process. ours, by_hand: seconds per call of each block, in pairs."""
        pairs = list(zip(ours, by_hand))
        ratio = math.exp(statistics.median(math.log(a / b) for a, b in pairs))
        return cls(ratio, statistics.median(a - b for a, b in pairs), statistics.median(by_hand))

    @classmethod
    def median(cls, processes: Sequence[Overhead]) -> Overhead:
        """The median of each figure over processes."""
        return cls(*(statistics.median(values) for values in zip(*map(astuple, processes))))

    @property
    def accepted(self) -> bool:
        """Whether the difference is small enough."""
        return abs(self.ratio - 1) <= OVERHEAD or abs(self.more) <= OVERHEAD_SECONDS


def compare_with_loop(name: str, model: str, task: str, cores: Sequence[int]) -> Check:
    """Check the overhead of the harness for one framework.

    The median over PROCESSES processes decides whether the check passes. When it does not, more processes are measured; the check
    fails only when every process shows the same deviation, and is undecided otherwise.

    name: of the framework. model: a model of the zoo. task: a key of byhand.BY_TASK.
    cores: the cores that the processes may use; () for all.
    """
    title = f"overhead, {name} {model}{TITLES[task]}"
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
        allowed = ",".join(map(str, cores))
        arguments = (name, model, "1", folder, task, allowed)
        command = worker_command(
            adapter, Path(folder), 1, "cpu", module="xverify.selftest.byhand", arguments=arguments, allocator="system"
        )
        try:
            processes = _measure(command)
        except RuntimeError as error:
            return Check(title, str(error), accepted, None)
    return _judge(title, accepted, processes)


def _measure(command: Command) -> list[Overhead]:
    """The overhead in each process. Raises RuntimeError with the last line of a process that failed."""
    processes: list[Overhead] = []
    while not processes or (len(processes) < MOST_PROCESSES and not Overhead.median(processes).accepted):
        for _ in range(PROCESSES):
            done = subprocess.run(
                command.arguments, capture_output=True, text=True, env=command.environment, check=False
            )
            if done.returncode:
                raise RuntimeError(done.stderr.strip().splitlines()[-1])
            processes.append(Overhead.of_process(**json.loads(done.stdout)))
    return processes


def _judge(title: str, accepted: str, processes: Sequence[Overhead]) -> Check:
    median = Overhead.median(processes)
    found = f"ratio {median.ratio:.4f}, {median.more * 1e6:+.2f} µs a call of {median.call:.2g} s"
    if median.accepted:
        return Check(title, found, accepted, True)
    ratios = sorted(process.ratio for process in processes)
    found += f"; by process {', '.join(f'{ratio:.4f}' for ratio in ratios)}"
    same_sign = ratios[0] > 1 or ratios[-1] < 1
    fails = same_sign and not any(process.accepted for process in processes)
    return Check(title, found, accepted, False if fails else None)
