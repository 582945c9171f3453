"""The rounds of one process run: one timed block of every subject in turn, each round on the next input case."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..progress import Listener
from ..timing import plan
from ..timing.noise import Gate
from ..workload.request import Request
from .stages import Timed, TimedBlock
from .timed import TimedCandidate

# The last blocks of a process run keep their outputs, at least in this number of blocks. Work that ``wait``
# left undone shows in all of them. One block more is kept where there is one: it is another call on the input of the last one.
KEPT_BLOCKS = 4


@dataclass(frozen=True)
class Interleaved:
    """The rounds of a process run. gate: the noise gate with its counts. planned: the number of rounds that were planned."""

    gate: Gate
    planned: int


def interleave(
    candidates: Sequence[TimedCandidate],
    request: Request,
    effort: plan.Effort,
    seconds_left: float | None,
    listener: Listener,
) -> Interleaved:
    """Time all candidates of this process run, and give each candidate its blocks.

    seconds_left: until --max-seconds is over; None without a limit. Rounds are planned for half of it. No round begins when three
        quarters of it are over, except the first: the rest is for the comparison of the outputs.
    """
    gate = Gate()
    by_label = {candidate.label: candidate for candidate in candidates}
    run = max(candidate.run for candidate in candidates)
    seconds = plan.RUN_SECONDS if seconds_left is None else min(plan.RUN_SECONDS, seconds_left / 2)
    per_call = {label: candidate.seconds_per_call for label, candidate in by_label.items()}
    limit = None if seconds_left is None else max(0.0, 0.75 * seconds_left)
    planned = plan.plan(per_call, request.cases, request.rerun, effort.rounds, seconds, limit)
    blocks: dict[str, list[TimedBlock]] = defaultdict(list)
    begun = time.monotonic()
    try:
        for index, order in enumerate(plan.orders(list(by_label), planned.rounds, request.seed + run)):
            spent = time.monotonic() - begun
            if index and limit is not None and spent >= limit:
                break
            # The outputs of the last block on each input case are kept.
            ends = planned.rounds
            if limit is not None:
                ends = min(ends, math.floor(limit / (spent / index if index else _seconds(planned, per_call))))
            keep = index + max(request.cases, KEPT_BLOCKS) + 1 >= ends
            calls = {label: planned.calls[label][index] for label in order}
            _round(gate, [by_label[label] for label in order], index, index % request.cases, calls, keep, blocks)
            done = index + 1
            listener.timing(done, planned.rounds, (time.monotonic() - begun) / done * (planned.rounds - done))
    finally:  # an interrupted run keeps what it has measured
        for label, candidate in by_label.items():
            candidate.take(Timed.of(blocks[label]))
    return Interleaved(gate, planned.rounds)


def _seconds(planned: plan.Plan, per_call: Mapping[str, float]) -> float:
    """The expected seconds of the first round."""
    return max(1e-9, sum(planned.calls[label][0] * seconds for label, seconds in per_call.items()))


def _round(
    gate: Gate,
    candidates: Sequence[TimedCandidate],
    index: int,
    case: int,
    calls: dict[str, int],
    keep: bool,
    blocks: dict[str, list[TimedBlock]],
) -> None:
    """Time one block of each candidate, in this order. When one block is noisy, all blocks of the round are dropped."""
    reasons = {gate.canary()}
    for candidate in candidates:
        mine = blocks[candidate.label]
        first_kept = not any(block.outputs for block in mine)
        block = candidate.time_block(gate, index, case, calls[candidate.label], keep, first_kept)
        if block is not None:
            mine.append(block)
            reasons.add(block.noisy)
    noisy = gate.round({reason for reason in reasons if reason})
    if noisy:
        for candidate in candidates:
            mine = blocks[candidate.label]
            if mine and mine[-1].sample.round == index:
                mine[-1] = replace(mine[-1], sample=replace(mine[-1].sample, dropped=noisy))
