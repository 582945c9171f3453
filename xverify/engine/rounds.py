"""The rounds of one process run: one timed block of every subject in turn, each round on the next input case."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ..progress import Listener
from ..timing import plan
from ..timing.noise import Gate
from ..workload.request import Request
from .candidate import Candidate
from .stages import Timed, TimedBlock

# The last blocks of a process run keep their outputs, at least in this number of blocks. Work that ``wait``
# left undone shows in all of them.
KEPT_BLOCKS = 4


def interleave(
    candidates: Sequence[Candidate],
    request: Request,
    effort: plan.Effort,
    seconds_left: float | None,
    listener: Listener,
) -> Gate:
    """Time all candidates of this process run, and give each candidate its blocks. Returns the noise gate with its counts.

    seconds_left: until --max-seconds is over; None without a limit.
    """
    gate = Gate()
    by_label = {candidate.label: candidate for candidate in candidates}
    run = max(candidate.run for candidate in candidates)
    seconds = plan.RUN_SECONDS if seconds_left is None else min(plan.RUN_SECONDS, seconds_left / 2)
    per_call = {label: candidate.seconds_per_call for label, candidate in by_label.items()}
    planned = plan.plan(per_call, request.cases, request.rerun, effort.rounds, seconds)
    blocks: dict[str, list[TimedBlock]] = defaultdict(list)
    begun = time.monotonic()
    try:
        for index, order in enumerate(plan.orders(list(by_label), planned.rounds, request.seed + run)):
            # The outputs of the last block on each input case are kept.
            keep = index + max(request.cases, KEPT_BLOCKS) >= planned.rounds
            calls = {label: planned.calls[label][index] for label in order}
            _round(gate, [by_label[label] for label in order], index, index % request.cases, calls, keep, blocks)
            done = index + 1
            listener.timing(done, planned.rounds, (time.monotonic() - begun) / done * (planned.rounds - done))
    finally:  # an interrupted run keeps what it has measured
        for label, candidate in by_label.items():
            candidate.take(Timed.of(blocks[label]))
    return gate


def _round(
    gate: Gate,
    candidates: Sequence[Candidate],
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
