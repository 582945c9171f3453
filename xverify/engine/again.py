"""Measures again what looks as if calls did not do their work, after the timed blocks of a process run.

A row loses its speed for this only when it is seen twice, the second time in quiet blocks alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..messages import Block, ReleaseMemory, Warm
from ..processes.worker import Worker
from ..results.records import Sample
from ..timing import statistics
from ..timing.noise import LIMIT, TICK, WINDOW_TICKS, Gate, look, used
from ..timing.speed import Measurements

ATTEMPTS = 3  # how often a block is timed until it is quiet
PAIRS, MOST_PAIRS = 8, 200  # pairs of calls
LEAST_SECONDS, MOST_SECONDS = (
    0.5,
    5.0,
)  # of all pairs; in a shorter time, /proc/stat cannot show whether others used the cores
KEPT = 4  # blocks whose outputs are read again


@dataclass(frozen=True)
class Again:
    """What was measured again; every field is empty when its first measurement was not suspicious.

    blocks: blocks of no call, of n and of 2n calls.
    pairs: seconds of a call on a new input and of the same call again, of quiet pairs.
    unfinished: how much longer the first reading of outputs took than the second, for each block.
    """

    blocks: tuple[Sample, ...] = ()
    pairs: tuple[tuple[float, float], ...] = ()
    unfinished: tuple[float, ...] = ()


def measure_again(worker: Worker, measured: Measurements, run: int) -> Again:
    """Measure again what is suspicious in the measurements of a candidate. run: number of the process run."""
    mine = [sample for sample in measured.samples if sample.launch == run]
    if not mine:
        return Again()
    seconds = statistics.seconds_per_call(statistics.clean(measured.samples)).mean
    growth = statistics.vanished(measured.samples)
    amortised = statistics.amortised(measured.new_input_seconds, seconds)
    unfinished = statistics.unfinished(measured.unfinished, seconds)
    if growth is None and not amortised and not unfinished:
        return Again()
    worker.ask(Warm(calls=measured.cases, seconds=0.0))  # memory may have been given back to the system
    gate = Gate()
    least = min(sample.calls for sample in mine)
    again = Again(
        blocks=_blocks(worker, gate, measured.cases, least, run) if growth is not None else (),
        pairs=_pairs(worker, measured.cases) if amortised else (),
        unfinished=_unfinished(worker, measured.cases, least) if unfinished else (),
    )
    worker.ask(ReleaseMemory())
    return again


def _blocks(worker: Worker, gate: Gate, cases: int, least: int, run: int) -> tuple[Sample, ...]:
    """Blocks of no call, of ``least`` and of twice as many calls on every input case. Noisy ones are timed again afterwards.

    Two blocks in a row have different inputs, where there are several.
    """
    samples: list[Sample] = []
    wanted = [(calls, case) for calls in (0, least, 2 * least) for case in range(cases)]
    for _ in range(ATTEMPTS):
        for calls, case in wanted:
            before = look(*worker.pids)
            seconds = worker.ask(Block(case, calls)).seconds
            samples.append(Sample(len(samples), case, calls, seconds, run, gate.block(before, look(*worker.pids))))
        quiet = {(sample.calls, sample.case) for sample in samples if not sample.dropped}
        wanted = [each for each in wanted if each not in quiet]
    return tuple(samples)


def _pairs(worker: Worker, cases: int) -> tuple[tuple[float, float], ...]:
    """Quiet pairs of a call on another input than the call before and the same call again.

    A pair is noisy when a thread of the process waited for a core while other processes or the hypervisor used one. Pairs are
    short, so the use by others is taken over all of them.
    """
    found: list[tuple[tuple[float, float], float]] = []
    begun, case = time.perf_counter(), 0
    first = last = look(*worker.pids)
    while not _enough(found, time.perf_counter() - begun):
        before = look(*worker.pids)
        pair = worker.ask(Block(case, 1)).seconds, worker.ask(Block(case, 1)).seconds
        last = look(*worker.pids)
        wall, delay, _, _ = used(before, last)
        found.append((pair, delay / wall))
        case = (case + 1) % cases
    wall, _, others, steal = used(first, last)
    alone = others + steal < max(LIMIT * wall, WINDOW_TICKS * TICK)
    return tuple(pair for pair, delay in found if alone or delay <= LIMIT)


def _enough(pairs: Sequence[tuple[tuple[float, float], float]], seconds: float) -> bool:
    """Whether no more pairs are needed. pairs: each with its delay. seconds: since the first of them began."""
    quiet = sum(delay <= LIMIT for _, delay in pairs)
    return (quiet >= PAIRS and (seconds >= LEAST_SECONDS or len(pairs) >= MOST_PAIRS)) or (
        seconds >= MOST_SECONDS and len(pairs) >= PAIRS
    )


def _unfinished(worker: Worker, cases: int, calls: int) -> tuple[float, ...]:
    """How much longer the first reading of outputs takes than the second, with calls before each, in some more blocks.

    Without calls before the second one, the first reading may take 0.1 ms longer than the second on a busy machine, because the
    calls of the block have filled the processor's caches.
    """
    keep = str(worker.folder / "unfinished.npz")
    replies = [worker.ask(Block(index % cases, calls, keep, calls_between=True)) for index in range(KEPT)]
    return tuple(reply.unfinished_seconds or 0.0 for reply in replies)
