"""Compares the harness with a plain script in a process of its own, in alternation, under the same policy of memory allocation.

The loop by hand of ``overhead`` shares the process of the harness, and so its memory. This check shows whether a process of the
harness is as fast as a process that the harness never touched.
"""

from __future__ import annotations

import math
import random
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .. import host
from ..errors import SubjectError
from ..framework import discovery as frameworks
from ..messages import Block, Load, Prepare, Warm
from ..processes.command import interpreter, worker_command
from ..processes.worker import Worker
from ..reference.build import build_question
from ..timing import statistics as timing
from ..weights import npz
from ..workload import probe
from ..workload.spec import find_model
from .check import Check
from .overhead import OVERHEAD
from .script import WARM_CALLS, WARM_SECONDS
from .simulation import CHANCE

FRAMEWORK, MODEL, BATCH, SIZE = "torch", "resnet50", 4, 224
# Pairs of processes, one of the harness and one of the script. When they do not decide, the number is doubled.
PAIRS = 6
# Policy -> the widest half of an interval, of a logarithm, that decides. With "system" the state of the allocator differs from
# process to process, and so does the speed; only differences that would be REFUSED as noise are too wide there.
WIDEST = {"keep": timing.NARROW, "system": math.log1p(0.1)}
LEAST_TURNS, SECONDS = 10, 8.0  # as many turns as fit into this time, and at least LEAST_TURNS
TIMEOUT = 600.0  # seconds


@dataclass(frozen=True)
class Pair:
    """A process of the harness and one of the script, which make calls in turns.

    ratio: median, over all turns, of the seconds of a call in the harness / in the script.
    faults: page faults a call of the harness and of the script; None when they are not reported.
    """

    ratio: float
    faults: tuple[float | None, float | None]


def compare_with_script(policy: str, cores: Sequence[int]) -> Check:
    """Check that the harness takes as long as a script. policy: of memory allocation. cores: to run on; () for all.

    The logarithms of the time ratios of all pairs of processes give an interval that misses the truth with a probability of
    CHANCE. The check fails when the whole interval lies outside of the accepted range, and is undecided when half of it is wider
    than WIDEST of the policy.
    """
    title = f"a script in its own process, {FRAMEWORK} {MODEL}, batch {BATCH}, --allocator {policy}"
    accepted = f"the interval reaches into ±{OVERHEAD:.1%}, and is within ±{math.expm1(WIDEST[policy]):.0%}"
    if host.missing(frameworks.load(FRAMEWORK)):
        return Check(title, "not installed", accepted, None)
    pairs: list[Pair] = []
    try:
        while not pairs or (
            len(pairs) < 2 * PAIRS and judge(title, accepted, pairs, WIDEST[policy]).passed is not True
        ):
            pairs += [_pair(policy, cores) for _ in range(PAIRS)]
    except (SubjectError, RuntimeError) as error:
        return Check(title, str(error), accepted, None)
    return judge(title, accepted, pairs, WIDEST[policy])


def judge(title: str, accepted: str, pairs: Sequence[Pair], widest: float) -> Check:
    """The check of these pairs of processes. widest: half of the widest interval that decides."""
    from scipy import stats  # late: `xverify --help` and `list` need no statistics

    interval = timing.estimate([math.log(pair.ratio) for pair in pairs])
    half = float(stats.t.ppf(1 - CHANCE / 2, interval.freedom)) * interval.error
    low, high = interval.mean - half, interval.mean + half
    faults = [_faults(each) for each in zip(*(pair.faults for pair in pairs))]
    text = (
        f"ratio {math.exp(interval.mean):.4f} ({math.exp(low):.4f}–{math.exp(high):.4f}, {len(pairs)} pairs of processes); "
        f"page faults a call {faults[0]}, the script {faults[1]}"
    )
    if low > math.log1p(OVERHEAD) or high < math.log1p(-OVERHEAD):
        return Check(title, text, accepted, False)
    return Check(title, text, accepted, True if half <= widest else None)


def _faults(counts: Sequence[float | None]) -> str:
    """The fewest and the most page faults of a call of some processes."""
    known = [each for each in counts if each is not None]
    return " to ".join(dict.fromkeys(f"{end:,.0f}" for end in (min(known), max(known)))) if known else "unknown"


def _pair(policy: str, cores: Sequence[int]) -> Pair:
    """Time a call of each process in turns; which one begins a turn is random. The other process sleeps meanwhile."""
    ratios: list[float] = []
    generator = random.Random(0)
    with _harness(policy, cores) as worker, _script(policy, cores) as script:
        before, begun = worker.page_faults(), time.perf_counter()
        while time.perf_counter() - begun < SECONDS or len(ratios) < LEAST_TURNS:
            found = {}
            for each in (worker, script) if generator.random() < 0.5 else (script, worker):
                found[each] = worker.ask(Block(0, 1)).seconds if each is worker else _call(script)
            ratios.append(found[worker] / found[script])
        after = worker.page_faults()
        own = (after - before) / len(ratios) if after is not None and before is not None else None
        output, _ = script.communicate(timeout=TIMEOUT)
    return Pair(statistics.median(ratios), (own, float(output)))


@contextmanager
def _harness(policy: str, cores: Sequence[int]) -> Iterator[Worker]:
    """A worker that is warm. It builds the model and loads its weights as in a run."""
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
        yield worker


@contextmanager
def _script(policy: str, cores: Sequence[int]) -> Iterator[subprocess.Popen[str]]:
    """The process of the script, warm. Raises RuntimeError with its last line when it fails."""
    adapter = frameworks.load(FRAMEWORK)
    arguments = (str(find_model(MODEL).code / "torch.py"), str(BATCH), str(SIZE), ",".join(map(str, cores)))
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
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
        with subprocess.Popen(
            command.arguments,
            text=True,
            env=command.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process:
            watchdog = threading.Timer(TIMEOUT, process.kill)
            watchdog.start()
            try:
                _read(process)  # it is warm
                yield process
            except (EOFError, BrokenPipeError):
                process.kill()
                log.seek(0)
                raise RuntimeError(f"the script ended: {log.read().strip().splitlines()[-1:]}") from None
            finally:
                watchdog.cancel()
                process.kill()


def _call(script: subprocess.Popen[str]) -> float:
    """The seconds of one call of the script."""
    assert script.stdin is not None
    script.stdin.write("\n")
    script.stdin.flush()
    return float(_read(script))


def _read(script: subprocess.Popen[str]) -> str:
    """The next line of the script."""
    assert script.stdout is not None
    line = script.stdout.readline()
    if not line:
        raise EOFError
    return line
