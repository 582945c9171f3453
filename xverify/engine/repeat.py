"""Whether another process run would tell more about the speed of the candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..timing import plan, statistics
from ..timing.speed import fault, log_ratios
from .candidate import Candidate

MAX_NOISY_RUNS = 3  # process runs after which a machine that is too noisy is not tried any further


def faultless(candidate: Candidate) -> bool:
    """Whether nothing is wrong with its speed that more process runs could not mend."""
    return fault(candidate.measurements()) is None


def another_run_helps(
    going: Sequence[Candidate], candidates: Sequence[Candidate], effort: plan.Effort, refusal: str | None
) -> bool:
    """Whether another process run would make the intervals narrower, and they need it.

    going: the candidates that would take part. candidates: all of the run; the first is the baseline.
    refusal: why the machine is too noisy to be timed on; None when it is not.
    """
    baseline = candidates[0]
    if baseline not in going or (len(going) == 1 and len(candidates) > 1):
        return False
    mine = baseline.measurements()
    if len(going) == 1:
        seconds = statistics.launch_seconds(statistics.clean(mine.samples))
        logs = [[math.log(one) for one in seconds]]
    else:
        logs = [log_ratios(each.measurements(), mine) for each in going if each is not baseline]
    done = len(baseline.process_runs)
    if done >= effort.most or statistics.enough(logs, effort):
        return False
    return not (done >= MAX_NOISY_RUNS and refusal)
