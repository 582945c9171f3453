"""The measurements of one process run: the warm-up, the timed blocks, and then memory and repeated calls.

Every function asks one worker and returns a record. During the warm-up and the timed blocks, nothing else may run on the machine.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from .. import host, messages
from ..processes.worker import Worker
from ..results.records import Memory, Sample
from ..timing import plan
from ..timing.bounds import MOST_SECONDS, SERIES, Bounds, Series, pieces
from ..timing.bounds import bounds as of_series
from ..timing.noise import Gate, explained, look
from ..workload.request import Request
from ..workload.spec import ModelSpec
from .stages import Repeated, TimedBlock

MEMORY_SECONDS = 0.1  # memory is sampled for at least this time, unless --warmup says how many calls there are
STEADY_SECONDS = 10.0  # a warm-up ends after this time and four windows of blocks, even when it is not steady
ENOUGH_SECONDS = (
    0.05  # of calls on new inputs; shorter ones are repeated, because a pause of the system may be in one of them
)
SAMPLING_SECONDS = 0.01  # between two samples of resident memory

T = TypeVar("T")


@dataclass(frozen=True)
class WarmUp:
    """The calls before timing.

    steady: whether the speed became steady; None when the user gave the number of calls.
    rss_mib: samples of resident memory during its first calls; empty when it was not sampled.
    cut: whether it ended early, because --max-seconds leaves no more time.
    """

    calls: int
    seconds: float
    seconds_per_call: float
    steady: bool | None
    rss_mib: tuple[float, ...] = ()
    cut: bool = False


def warm_up(
    worker: Worker, request: Request, second_step_seconds: float, sample_memory: bool, most: float | None = None
) -> WarmUp:
    """Warm up for ``--warmup`` calls, or until the speed is steady; not at all when nothing is timed.

    second_step_seconds: the duration of a call, when no call is made.
    sample_memory: whether to sample resident memory during the first calls. No clock runs then, so sampling costs no speed.
    most: greatest number of seconds; None without a limit.
    """
    if request.no_timing:
        return WarmUp(0, 0.0, second_step_seconds, None)
    if request.warmup is not None:
        return _warm_literally(worker, request.warmup, request.cases, second_step_seconds, sample_memory, most)
    return _warm_until_steady(worker, request.cases, sample_memory, most)


def _warm_literally(
    worker: Worker, wanted: int, cases: int, second_step_seconds: float, sample_memory: bool, most: float | None
) -> WarmUp:
    """Make exactly ``wanted`` calls. With a limit of seconds, they are asked for in parts, so that the warm-up can end early."""
    calls, seconds, per_call = 0, 0.0, second_step_seconds
    samples: tuple[float, ...] = ()
    while calls < wanted and (most is None or not calls or seconds < most):
        size = wanted - calls
        if most is not None:
            fitting = int(most / 4 / max(per_call, 1e-9))
            size = min(size, max(cases, fitting // cases * cases))
        reply, found = _warm_calls(worker, size, 0.0, sample_memory and not calls)
        calls, seconds, per_call = calls + reply.calls, seconds + reply.seconds, reply.seconds_per_call
        samples += found
    return WarmUp(calls, seconds, per_call, None, samples, cut=calls < wanted)


def _warm_calls(
    worker: Worker, calls: int, seconds: float, sample_memory: bool
) -> tuple[messages.Warmed, tuple[float, ...]]:
    """Call this many times, and for this many seconds. Returns the reply, and samples of resident memory during the calls."""
    question = messages.Warm(calls=calls, seconds=seconds)
    if not sample_memory or not calls:
        return worker.ask(question), ()
    return sample_rss(worker, lambda: worker.ask(question))


def _warm_until_steady(worker: Worker, cases: int, sample_memory: bool, most: float | None) -> WarmUp:
    """Call on every case, then run blocks until two windows of them agree: see timing.plan.steady."""
    reply, samples = _warm_calls(worker, cases, MEMORY_SECONDS if sample_memory else 0.0, sample_memory)
    calls, seconds, per_call = reply.calls, reply.seconds, reply.seconds_per_call
    blocks: list[float] = []
    steady = False
    cut = most is not None and seconds >= most
    while not steady and not cut and (seconds < STEADY_SECONDS or len(blocks) < 4 * plan.window(cases)):
        size = plan.calls_a_block(per_call)
        took = worker.ask(messages.Block(case=len(blocks) % cases, calls=size)).seconds
        per_call = took / size
        blocks.append(per_call)
        calls, seconds = calls + size, seconds + took
        steady = plan.steady(blocks, cases)
        cut = not steady and most is not None and seconds >= most
    per_call = statistics.median(blocks[-plan.window(cases) :] or [per_call])
    return WarmUp(calls, seconds, per_call, steady, samples, cut)


def time_block(
    worker: Worker,
    gate: Gate,
    *,
    run: int,
    index: int,
    case: int,
    calls: int,
    keep: Path | None,
    room: int,
    first_kept: bool,
) -> TimedBlock:
    """Time one block of calls on one input case.

    run, index: the numbers of the process run and of the round in it. case: the input case. calls: number of calls.
    keep: a file for the outputs of the last call; None keeps none. room: bytes of one call's outputs.
    first_kept: whether no earlier block of this process run kept its outputs; then peak memory is read first, because reading
        outputs takes memory that is not the framework's.
    """
    peak = worker.peak_rss_mib() if keep is not None and first_kept else None
    question = messages.Block(case=case, calls=calls, keep=str(keep) if keep else None, room=room if keep else 0)
    before = look(*worker.pids)
    reply = worker.ask(question)
    noisy = gate.block(before, look(*worker.pids))
    timed = Sample(index, case, calls, reply.seconds, run)
    return TimedBlock(timed, noisy, keep, reply.unfinished_seconds or 0.0, peak)


def bounds(worker: Worker, seconds_per_call: float) -> Bounds:
    """Bounds of the seconds of an undisturbed call, from series of short pieces on a machine that is too busy for blocks."""
    calls, count = pieces(seconds_per_call)
    series: list[Series] = []
    begun = time.monotonic()
    while len(series) < SERIES and (not series or time.monotonic() - begun < MOST_SECONDS):
        before = look(*worker.pids)
        seconds = worker.ask(messages.Pieces(calls, count)).seconds
        series.append(Series(seconds, calls, explained(before, look(*worker.pids))))
    return of_series(series)


def output_bytes(spec: ModelSpec, batch: int) -> int:
    """Bytes of the outputs of one call."""
    outputs = spec.outputs.values()
    return sum(math.prod(each.sized(batch)) * np.dtype(each.dtype).itemsize for each in outputs)


def call_again(worker: Worker, cases: int, last: int, kept: set[int]) -> Repeated:
    """Call on inputs again, each time on another input than the call before, where there are several.

    When the outputs of every case were kept, calls on the other inputs are made until they took ENOUGH_SECONDS; the last one of
    them is the second call on its input. Otherwise the model is called on each input whose outputs are missing, and then once more
    on that of the last timed block.

    last: the input case of the last timed block; any case when nothing was timed. kept: the cases whose outputs a timed block kept.
    """
    second = worker.folder / "again.npz"
    seconds: list[float] = []

    def call(case: int, keep: Path) -> None:
        seconds.append(worker.ask(messages.Block(case=case, calls=1, keep=str(keep))).seconds)

    others = [(last + step) % cases for step in range(1, cases)]
    if others and kept.issuperset({last, *others}):
        for case in others:
            call(case, second)
            if sum(seconds) >= ENOUGH_SECONDS:
                break
        return Repeated({}, case, second, min(seconds))
    outputs = {case: worker.folder / f"outputs-{case}.npz" for case in [last, *others] if case not in kept}
    for case, path in outputs.items():
        call(case, path)
    call(last, second)
    new = seconds[1:] if last in outputs else seconds  # the call before the first one may have had the same input
    return Repeated(outputs, last, second, min(new) if others else 0.0)


def memory(worker: Worker, peak: float | None, samples: Sequence[float], device: str) -> Memory:
    """The memory of the process.

    The samples are of calls that were made before the peak was read. The system's peak covers all calls until then, so it is not
    below the mean of the samples.

    peak: the peak before any outputs were read; None: read it now.
    samples: resident memory during the first calls of the warm-up; empty: more calls are made now, and the peak covers them, too.
    """
    if not samples:
        _, samples = sample_rss(worker, lambda: worker.ask(messages.Warm(calls=1, seconds=MEMORY_SECONDS)))
        peak = None
    peak = peak or worker.peak_rss_mib()
    average = statistics.fmean(samples) if samples else None
    if peak is not None and samples:
        peak = max(peak, *samples)  # some kernels count the two to different exactness
    if device == "cpu":
        return Memory(peak, average, worker.import_rss_mib)
    reply = worker.ask(messages.DeviceMemory())
    return Memory(
        peak,
        average,
        worker.import_rss_mib,
        gpu_peak_mib=reply.peak_mib,
        gpu_process_mib=host.gpu_process_mib(worker.pid) if reply.total_mib is not None else None,
        gpu_used_mib=reply.used_mib,
        gpu_total_mib=reply.total_mib,
    )


def sample_rss(worker: Worker, work: Callable[[], T]) -> tuple[T, tuple[float, ...]]:
    """What ``work`` returns, and samples of resident memory in MiB while it runs and at its end, where the system reports it."""
    samples: list[float | None] = []
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLING_SECONDS):
            samples.append(worker.rss_mib())

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        reply = work()
        samples.append(worker.rss_mib())
    finally:
        done.set()
        sampler.join()
    return reply, tuple(each for each in samples if each is not None)
