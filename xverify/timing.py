"""Timing as pure functions: what to run, and what the samples say. The engine runs; workers hold the clock.

The method is the Jittor performance test's (warm up, repeat many times, synchronise before and after), with the blocks of
all subjects interleaved so that a change of the machine's speed meets them alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from .records import Sample

BLOCK_SECONDS = 0.06  # a shorter block would measure the clock and the scheduler
QUICK_SECONDS = 15.0  # timed seconds of all subjects together at --effort quick
MIN_ROUNDS, MAX_ROUNDS = 8, 40
LITERAL_ROUNDS = 20  # --rerun is cut into at most so many blocks
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Plan:
    """calls: subject -> the calls of its block in each round."""

    rounds: int
    calls: Mapping[str, Sequence[int]]


def plan(seconds_per_call: Mapping[str, float], cases: int, rerun: int | None) -> Plan:
    """How many rounds, and how many calls a block.

    seconds_per_call: measured in warm-up. cases: every input case is met at least once when there are calls enough.
    rerun: exactly so many timed calls for every subject (the Jittor method's setting); None: by time.
    """
    if rerun is not None:
        fastest = min(seconds_per_call.values())
        rounds = min(rerun, max(cases, min(LITERAL_ROUNDS, int(rerun * fastest / BLOCK_SECONDS))))
        share = [rerun // rounds + (index < rerun % rounds) for index in range(rounds)]
        return Plan(rounds, dict.fromkeys(seconds_per_call, share))
    calls = {name: max(1, math.ceil(BLOCK_SECONDS / max(t, 1e-9))) for name, t in seconds_per_call.items()}
    a_round = sum(calls[name] * t for name, t in seconds_per_call.items())
    rounds = max(MIN_ROUNDS, cases, min(MAX_ROUNDS, int(QUICK_SECONDS / a_round)))
    return Plan(rounds, {name: [n] * rounds for name, n in calls.items()})


def orders(subjects: Sequence[str], rounds: int, seed: int) -> list[list[str]]:
    """The order of subjects in each round: random, and every second round the reverse of the one before."""
    generator = random.Random(seed)
    result: list[list[str]] = []
    for index in range(rounds):
        if index % 2:
            result.append(result[-1][::-1])
        else:
            result.append(generator.sample(list(subjects), len(subjects)))
    return result


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% t interval."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The mean and its Student-t interval; a single value has no interval, so both ends are infinite."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Interval(mean, -math.inf, math.inf)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * math.sqrt(variance / len(values))
    return Interval(mean, mean - half, mean + half)


def seconds_per_call(samples: Sequence[Sample]) -> Interval:
    """Seconds a call: all timed seconds over all calls, with the interval of the blocks within this launch."""
    spread = interval([sample.seconds / sample.calls for sample in samples])
    mean = math.fsum(sample.seconds for sample in samples) / sum(sample.calls for sample in samples)
    return Interval(mean, max(0.0, mean - (spread.mean - spread.low)), mean + (spread.high - spread.mean))


def ratio(samples: Sequence[Sample], baseline: Sequence[Sample]) -> Interval | None:
    """Time of a subject over time of the baseline, paired by round: median of log-ratios, with their t interval.

    None when no round has both.
    """
    theirs = {sample.round: sample.seconds / sample.calls for sample in baseline}
    logs = sorted(math.log(s.seconds / s.calls / theirs[s.round]) for s in samples if theirs.get(s.round))
    if not logs:
        return None
    middle = (logs[(len(logs) - 1) // 2] + logs[len(logs) // 2]) / 2
    spread = interval(logs)
    half = spread.high - spread.mean
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def unfinished(leaks: Sequence[float], seconds: float) -> bool:
    """Whether computation was left undone when the clock stopped.

    leaks: for each kept block, how much longer the first reading of its outputs took than the second, in seconds. An
    output that is already there reads as fast the first time; one that is not makes every first reading compute it.
    """
    return bool(leaks) and min(leaks) > max(0.5 * seconds, 100e-6)
