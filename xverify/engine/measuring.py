"""The measurements of one process run: the warm-up, the timed blocks, and then memory and repeated calls.

Every function asks one worker and returns a record. During the warm-up and the timed blocks, nothing else may run on the machine.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from .. import host
from ..results.records import Memory, Sample
from ..timing import plan
from ..timing.noise import Gate, look
from ..worker import messages
from ..worker.process import Worker
from ..workload.request import Request
from ..workload.spec import ModelSpec
from .stages import Repeated, TimedBlock

LONG_CALL = 0.3  # seconds; when a call takes longer, memory is sampled during the warm-up instead of in extra calls
STEADY_SECONDS = 10.0  # a warm-up ends after this time and four windows of blocks, even when it is not steady
SAMPLING_SECONDS = 0.01  # between two samples of resident memory

T = TypeVar("T")


@dataclass(frozen=True)
class WarmUp:
    """The calls before timing.

    steady: whether the speed became steady; None when the user gave the number of calls.
    average_rss_mib: mean resident memory during them; None when it was not sampled.
    """

    calls: int
    seconds: float
    seconds_per_call: float
    steady: bool | None
    average_rss_mib: float | None


def warm_up(worker: Worker, request: Request, second_step_seconds: float, sample_memory: bool) -> WarmUp:
    """Warm up for ``--warmup`` calls, or until the speed is steady."""
    sample_memory = sample_memory and second_step_seconds >= LONG_CALL
    if request.warmup is not None:
        reply, average = _warm_calls(worker, request.warmup, sample_memory)
        return WarmUp(reply.calls, reply.seconds, reply.seconds_per_call or second_step_seconds, None, average)
    return _warm_until_steady(worker, request.cases, sample_memory)


def _warm_calls(worker: Worker, calls: int, sample_memory: bool) -> tuple[messages.Warmed, float | None]:
    """Make this many calls. Returns the reply, and the mean resident memory during the calls, or None when it is not sampled."""
    question = messages.Warm(calls=calls, seconds=0.0)
    if not sample_memory or not calls:
        return worker.ask(question), None
    average, reply = average_rss(worker, lambda: worker.ask(question))
    return reply, average


def _warm_until_steady(worker: Worker, cases: int, sample_memory: bool) -> WarmUp:
    """Call on every case, then run blocks until two windows of them agree: see timing.plan.steady."""
    reply, average = _warm_calls(worker, cases, sample_memory)
    calls, seconds, per_call = reply.calls, reply.seconds, reply.seconds_per_call
    blocks: list[float] = []
    steady = False
    while not steady and (seconds < STEADY_SECONDS or len(blocks) < 4 * plan.window(cases)):
        size = plan.calls_a_block(per_call)
        took = worker.ask(messages.Block(case=len(blocks) % cases, calls=size)).seconds
        per_call = took / size
        blocks.append(per_call)
        calls, seconds = calls + size, seconds + took
        steady = plan.steady(blocks, cases)
    per_call = statistics.median(blocks[-plan.window(cases) :])
    return WarmUp(calls, seconds, per_call, steady, average)


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
    before = look(worker.pid)
    reply = worker.ask(question)
    noisy = gate.block(before, look(worker.pid))
    timed = Sample(index, case, calls, reply.seconds, run)
    return TimedBlock(timed, noisy, keep, reply.unfinished_seconds or 0.0, peak)


def output_bytes(spec: ModelSpec, batch: int) -> int:
    """Bytes of the outputs of one call."""
    outputs = spec.outputs.values()
    return sum(math.prod(each.sized(batch)) * np.dtype(each.dtype).itemsize for each in outputs)


def call_again(worker: Worker, cases: int, last: int, kept: set[int]) -> Repeated:
    """Call once more on each input, each time on another input than the call before; the last timed block's input comes last.

    last: the input case of the last timed block. kept: the cases whose outputs a timed block kept; the outputs of all other
    cases are kept here, and so are the second outputs of the last case.
    """
    second = worker.folder / "again.npz"
    seconds: list[float] = []
    outputs: dict[int, Path] = {}
    for case in [(last + step) % cases for step in range(1, cases + 1)]:
        path = second if case == last else worker.folder / f"outputs-{case}.npz"
        wanted = case == last or case not in kept
        reply = worker.ask(messages.Block(case=case, calls=1, keep=str(path) if wanted else None))
        seconds.append(reply.seconds)
        if case != last and wanted:
            outputs[case] = path
    return Repeated(outputs, second, min(seconds) if cases > 1 else 0.0)


def memory(worker: Worker, peak: float | None, average: float | None, device: str) -> Memory:
    """The memory of the process. peak: its peak; None when unknown. average: its mean during the warm-up; None: sample it now."""
    if average is None:
        average, _ = average_rss(worker, lambda: worker.ask(messages.Warm(calls=1, seconds=0.1)))
    if device == "cpu":
        return Memory(peak, average, worker.import_rss_mib)
    found = worker.ask(messages.DeviceMemory())
    return Memory(
        peak,
        average,
        worker.import_rss_mib,
        gpu_peak_mib=found.peak_mib,
        gpu_process_mib=host.gpu_process_mib(worker.pid) if found.total_mib is not None else None,
        gpu_used_mib=found.used_mib,
        gpu_total_mib=found.total_mib,
    )


def average_rss(worker: Worker, work: Callable[[], T]) -> tuple[float | None, T]:
    """Mean resident memory in MiB while ``work`` runs, None when the system does not report it; and what ``work`` returns."""
    samples: list[float] = []
    done = threading.Event()

    def sample() -> None:
        while not done.is_set():
            rss = worker.rss_mib()
            if rss is not None:
                samples.append(rss)
            done.wait(SAMPLING_SECONDS)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        reply = work()
    finally:
        done.set()
        sampler.join()
    return sum(samples) / len(samples) if samples else None, reply
