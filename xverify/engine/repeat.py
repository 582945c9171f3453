"""Decide whether another process run would make the speeds of the candidates more certain."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..timing import plan, statistics
from ..timing.speed import fault, log_ratios
from .timed import TimedCandidate

MAX_NOISY_RUNS = 3  # when the machine is too noisy after this number of process runs, no more are made


def faultless(candidate: TimedCandidate) -> bool:
    """Whether its speed has no fault. More process runs cannot repair a fault, such as a wrong output."""
    return fault(candidate.measurements()) is None


def process_runs_done(candidates: Sequence[TimedCandidate]) -> int:
    """How many process runs these candidates have. The first one, the baseline, has more when it is timed with others, too."""
    return max(len(each.process_runs) for each in candidates[1:] or candidates)


def another_run_helps(
    going: Sequence[TimedCandidate], candidates: Sequence[TimedCandidate], effort: plan.Effort, refusal: str | None
) -> bool:
    """Whether the intervals are still too wide, and another process run would make them narrower.

    going: the candidates that would take part. candidates: all that are timed together; the first is the baseline.
    refusal: why the machine is too noisy for timing; None when it is not.
    """
    baseline = candidates[0]
    if baseline not in going or (len(going) == 1 and len(candidates) > 1):
        return False
    mine = baseline.measurements()
    if len(going) == 1:
        seconds = statistics.process_run_seconds(statistics.clean(mine.samples))
        logs = [[math.log(one) for one in seconds]]
    else:
        logs = [log_ratios(each.measurements(), mine) for each in going if each is not baseline]
    done = process_runs_done(going)
    if done >= effort.most or statistics.enough(logs, effort):
        return False
    return not (done >= MAX_NOISY_RUNS and refusal)
