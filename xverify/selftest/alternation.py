"""Compares the harness with a plain script in a process of its own, in alternation, under the same policy of memory allocation.

The loop by hand of ``overhead`` shares the process of the harness, and so its memory. This check shows whether a process of the
harness is as fast as a process that the harness never touched.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import host
from ..errors import SubjectError
from ..framework import discovery as frameworks
from ..reference.build import build_question
from ..timing import statistics as timing
from ..weights import npz
from ..worker.command import interpreter, worker_command
from ..worker.messages import Block, Load, Prepare, Warm
from ..worker.process import Worker
from ..workload import probe
from ..workload.spec import find_model
from .check import Check
from .overhead import OVERHEAD
from .script import LEAST_CALLS, SECONDS, WARM_CALLS, WARM_SECONDS
from .simulation import CHANCE

FRAMEWORK, MODEL, BATCH, SIZE = "torch", "resnet50", 4, 224
# Pairs of processes, one of the harness and one of the script. When they do not decide, the number is doubled.
PAIRS = 6
TIMEOUT = 600.0  # seconds


@dataclass(frozen=True)
class Timed:
    """One process. seconds: median seconds of a call. faults: page faults a call; None when they are not reported."""

    seconds: float
    faults: float | None


def compare_with_script(policy: str, cores: Sequence[int]) -> Check:
    """Check that the harness takes as long as a script. policy: of memory allocation. cores: to run on; () for all.

    The logarithms of the time ratios of all pairs of processes give an interval that misses the truth with a probability of
    CHANCE. The check fails when the whole interval lies outside of the accepted range, and is undecided when half of it is wider
    than what the harness calls SAME.
    """
    title = f"a script in its own process, {FRAMEWORK} {MODEL}, batch {BATCH}, --allocator {policy}"
    accepted = f"the interval reaches into ±{OVERHEAD:.1%}, and is within ±{math.expm1(timing.NARROW):.0%}"
    if host.missing(frameworks.load(FRAMEWORK)):
        return Check(title, "not installed", accepted, None)
    pairs: list[tuple[Timed, Timed]] = []
    try:
        while not pairs or (len(pairs) < 2 * PAIRS and judge(title, accepted, pairs).passed is not True):
            pairs += [(_harness(policy, cores), _script(policy, cores)) for _ in range(PAIRS)]
    except (SubjectError, RuntimeError) as error:
        return Check(title, str(error), accepted, None)
    return judge(title, accepted, pairs)


def judge(title: str, accepted: str, pairs: Sequence[tuple[Timed, Timed]]) -> Check:
    """The check of these pairs of processes, each of the harness and of the script."""
    from scipy import stats  # late: `xverify --help` and `list` need no statistics

    found = timing.estimate([math.log(ours.seconds / script.seconds) for ours, script in pairs])
    half = float(stats.t.ppf(1 - CHANCE / 2, found.freedom)) * found.error
    low, high = found.mean - half, found.mean + half
    faults = [_faults(each) for each in zip(*pairs)]
    text = (
        f"ratio {math.exp(found.mean):.4f} ({math.exp(low):.4f}–{math.exp(high):.4f}, {len(pairs)} pairs of processes); "
        f"page faults a call {faults[0]}, the script {faults[1]}"
    )
    if low > math.log1p(OVERHEAD) or high < math.log1p(-OVERHEAD):
        return Check(title, text, accepted, False)
    return Check(title, text, accepted, True if half <= timing.NARROW else None)


def _faults(processes: Sequence[Timed]) -> str:
    """The fewest and the most page faults of a call of these processes."""
    known = [each.faults for each in processes if each.faults is not None]
    return " to ".join(dict.fromkeys(f"{end:,.0f}" for end in (min(known), max(known)))) if known else "unknown"


def _harness(policy: str, cores: Sequence[int]) -> Timed:
    """Time the calls in a worker, which builds the model and loads its weights as in a run."""
    folder, adapter = find_model(MODEL), frameworks.load(FRAMEWORK)
    with (
        tempfile.TemporaryDirectory() as directory,
        Worker(
            adapter, interpreter(adapter), Path(directory), 1, "cpu", TIMEOUT, pin=cores, allocator=policy
        ) as worker,
    ):
        weights, inputs = worker.folder / "weights.npz", worker.folder / "inputs.npz"
        built = worker.ask(build_question(folder, FRAMEWORK, None))
        npz.save_file(probe.weights(built.shapes, 0), weights)
        npz.save_file(probe.inputs(folder.spec, BATCH, seed=0, cases=1), inputs)
        worker.ask(Load(str(weights)))
        worker.ask(Prepare(str(inputs), "eager"))
        worker.ask(Warm(calls=WARM_CALLS, seconds=WARM_SECONDS))
        before, begun = worker.page_faults(), time.perf_counter()
        seconds: list[float] = []
        while time.perf_counter() - begun < SECONDS or len(seconds) < LEAST_CALLS:
            seconds.append(worker.ask(Block(0, 1)).seconds)
        after = worker.page_faults()
    faults = (after - before) / len(seconds) if after is not None and before is not None else None
    return Timed(statistics.median(seconds), faults)


def _script(policy: str, cores: Sequence[int]) -> Timed:
    """Time the calls of the script. Raises RuntimeError with its last line when it fails."""
    adapter = frameworks.load(FRAMEWORK)
    arguments = (str(find_model(MODEL).code / "torch.py"), str(BATCH), str(SIZE), ",".join(map(str, cores)))
    with tempfile.TemporaryDirectory() as folder:
        command = worker_command(
            adapter,
            Path(folder),
            1,
            "cpu",
            interpreter(adapter),
            module="xverify.selftest.script",
            arguments=arguments,
            allocator=policy,
        )
        done = subprocess.run(
            command.arguments, capture_output=True, text=True, env=command.environment, check=False, timeout=TIMEOUT
        )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    reply = json.loads(done.stdout)
    return Timed(statistics.median(reply["seconds"]), reply["faults"])
