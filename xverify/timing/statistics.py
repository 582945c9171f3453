"""Timing as pure functions: what to run, and what the samples say. The engine runs; workers hold the clock.

The method is the Jittor performance test's (warm up, repeat many times, synchronise before and after), with the blocks of
all subjects interleaved so that a change of the machine's speed meets them alike. Fresh processes differ more from each other
than blocks within a process do (Kalibera & Jones, "Rigorous benchmarking in reasonable time", 2013), so a launch, not a block, is
what an interval counts.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..results.records import Sample

BLOCK_SECONDS = 0.06  # a shorter block would measure the clock and the scheduler
LAUNCH_SECONDS = 15.0  # timed seconds of all subjects together in one launch
MIN_ROUNDS = 8
LITERAL_ROUNDS = 20  # --rerun is cut into at most so many blocks
CONFIDENCE = 0.95
SAME = math.log(1.02)  # a ratio within ±2% is no difference that anybody should act on
NARROW = math.log(1.02)  # half an interval's width that ends the launches
WIDE = math.log(1.10)  # half an interval's width that says nothing
STEADY = 0.05  # by how much two windows of warm-up may differ
SLOPE = 0.01  # a change from window to window that is no trend even when every block shows it
TAIL_SAMPLES = 1000  # single calls without which no 99th percentile is told
VANISHED = 0.05  # 2n calls that take under 1.9 times what n take: not every call did its work


@dataclass(frozen=True)
class Effort:
    """How many launches at least and at most, and rounds in one at most: where there are many launches, few rounds tell as much."""

    least: int
    most: int
    rounds: int


EFFORTS = {"quick": Effort(1, 1, 40), "standard": Effort(6, 12, 16), "rigorous": Effort(12, 20, 24)}


@dataclass(frozen=True)
class Plan:
    """calls: subject -> the calls of its block in each round."""

    rounds: int
    calls: Mapping[str, Sequence[int]]


def plan(
    seconds_per_call: Mapping[str, float],
    cases: int,
    rerun: int | None,
    most: int = EFFORTS["quick"].rounds,
    seconds: float = LAUNCH_SECONDS,
) -> Plan:
    """How many rounds, and how many calls a block.

    seconds_per_call: measured in warm-up. cases: every input case is met at least once when there are calls enough.
    rerun: exactly so many timed calls for every subject (the Jittor method's setting); None: by time, in blocks of n and of 2n
    calls by turns, whole cycles of cases each (see ``vanished``). most, seconds: rounds, and time for all of them; MIN_ROUNDS
    there are in any case.
    """
    if rerun is not None:
        fastest = min(seconds_per_call.values())
        rounds = min(rerun, max(cases, min(LITERAL_ROUNDS, int(rerun * fastest / BLOCK_SECONDS))))
        share = [rerun // rounds + (index < rerun % rounds) for index in range(rounds)]
        return Plan(rounds, dict.fromkeys(seconds_per_call, share))
    calls = {name: calls_a_block(t) for name, t in seconds_per_call.items()}
    a_round = 1.5 * sum(calls[name] * t for name, t in seconds_per_call.items())
    cycle = 2 * cases
    fitting = min(most, int(seconds / a_round))
    rounds = max(-(-MIN_ROUNDS // cycle) * cycle, fitting // cycle * cycle)
    return Plan(rounds, {name: [n * (1 + index // cases % 2) for index in range(rounds)] for name, n in calls.items()})


def calls_a_block(seconds: float) -> int:
    """How many calls of so many seconds make a block."""
    return max(1, math.ceil(BLOCK_SECONDS / max(seconds, 1e-9)))


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


def window(cases: int) -> int:
    """Blocks in a window of warm-up: whole cycles of input cases, four at least."""
    return cases * -(-4 // cases)


def steady(blocks: Sequence[float], cases: int) -> bool:
    """Whether warm-up is over. blocks: seconds a call of each block, on the cases in turn.

    Block by block, the last window is compared with the one before, on the same cases: they agree within STEADY, and do not
    all still get faster, or all slower, by more than SLOPE.
    """
    size = window(cases)
    if len(blocks) < 2 * size:
        return False
    changes = [math.log(b / a) for a, b in zip(blocks[-2 * size : -size], blocks[-size:])]
    middle = statistics.median(changes)
    trend = all(change > 0 for change in changes) or all(change < 0 for change in changes)
    return abs(middle) <= STEADY and not (trend and abs(middle) > SLOPE)


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% t interval."""

    mean: float
    low: float
    high: float

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error, and the degrees of freedom of that."""

    mean: float
    error: float
    freedom: float

    @property
    def half(self) -> float:
        """Half the width of its 95% t interval."""
        from scipy import stats  # its import takes half a second, and few commands need it

        return float(stats.t.ppf((1 + CONFIDENCE) / 2, self.freedom)) * self.error


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of two values or more."""
    return Estimate(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)), len(values) - 1)


def change(old: Sequence[float], new: Sequence[float]) -> Estimate:
    """mean(new) - mean(old) of two independent samples, two values or more each (Welch 1947)."""
    a, b = estimate(old), estimate(new)
    error = math.hypot(a.error, b.error)
    parts = a.error**4 / a.freedom + b.error**4 / b.freedom
    return Estimate(b.mean - a.mean, error, error**4 / parts if parts else a.freedom + b.freedom)


def interval(values: Sequence[float]) -> Interval:
    """The mean and its Student-t interval; a single value has no interval, so both ends are infinite."""
    if len(values) < 2:
        return Interval(values[0], -math.inf, math.inf)
    found = estimate(values)
    return Interval(found.mean, found.mean - found.half, found.mean + found.half)


def clean(samples: Iterable[Sample]) -> list[Sample]:
    """Those of rounds without noise; all, when there is no other."""
    everything = list(samples)
    return [sample for sample in everything if not sample.dropped] or everything


def seconds_per_call(samples: Sequence[Sample]) -> Interval:
    """Seconds a call: all timed seconds over all calls, with the interval of launches; of blocks, when there is one launch."""
    mean = _rate(samples)
    launches = by_launch(samples)
    if len(launches) > 1:
        spread = interval(launch_seconds(samples))
    else:
        spread = interval([sample.seconds / sample.calls for sample in samples])
    return Interval(mean, max(0.0, mean - (spread.mean - spread.low)), mean + (spread.high - spread.mean))


def launch_seconds(samples: Sequence[Sample]) -> list[float]:
    """Seconds a call of each launch."""
    return [_rate(found) for found in by_launch(samples).values()]


def _rate(samples: Sequence[Sample]) -> float:
    return math.fsum(sample.seconds for sample in samples) / sum(sample.calls for sample in samples)


def by_launch(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    """launch -> its samples."""
    launches: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        launches[sample.launch].append(sample)
    return launches


def log_ratios(samples: Sequence[Sample], baseline: Sequence[Sample]) -> dict[int, list[float]]:
    """launch -> log(time of the subject over time of the baseline), paired by round."""
    theirs = {(sample.launch, sample.round): sample.seconds / sample.calls for sample in baseline}
    found: dict[int, list[float]] = defaultdict(list)
    for sample in samples:
        other = theirs.get((sample.launch, sample.round))
        if other:
            found[sample.launch].append(math.log(sample.seconds / sample.calls / other))
    return found


def ratio(samples: Sequence[Sample], baseline: Sequence[Sample]) -> Interval | None:
    """Time of a subject over time of the baseline: the median over the rounds of each launch, the mean and t interval of those.

    With one launch it is the median of its rounds with their t interval, which says nothing about another launch. None when no
    round has both.
    """
    found = log_ratios(samples, baseline)
    if not found:
        return None
    medians = [statistics.median(logs) for logs in found.values()]
    if len(medians) > 1:
        spread = interval(medians)
        return Interval(math.exp(spread.mean), math.exp(spread.low), math.exp(spread.high))
    half = interval(next(iter(found.values()))).half
    return Interval(math.exp(medians[0]), math.exp(medians[0] - half), math.exp(medians[0] + half))


# -- verdicts ---------------------------------------------------------------------------------------------------------


def enough(medians: Iterable[Sequence[float]], effort: Effort) -> bool:
    """Whether no more launches are needed: by the width of the intervals, never by what they say.

    medians: for each subject, the log-ratio to the baseline of each launch.
    """
    counts = [list(each) for each in medians]
    if not counts:
        return True
    fewest = min(len(each) for each in counts)
    if fewest >= effort.most:
        return True
    return fewest >= effort.least and all(len(each) > 1 and interval(each).half <= NARROW for each in counts)


def verdicts(found: Mapping[str, Estimate]) -> dict[str, tuple[str, str | None]]:
    """FASTER, SLOWER, SAME, AMBIGUOUS or REFUSED for each subject, with the reason where there is something to explain.

    found: subject -> its log-ratio to the baseline, over launches. Each subject has one claim, the likeliest of the three: that
    its ratio is below 0.98, above 1.02, or between. A single claim holds just when the 95% interval lies there; several are
    tested by Holm's step-down (Scandinavian Journal of Statistics 6, 1979), so that the chance of any false one stays 5%.
    """
    result: dict[str, tuple[str, str | None]] = {}
    claims: list[tuple[float, str, str]] = []
    for name, each in found.items():
        if each.half > WIDE:
            why = f"launches differ too much: the interval of the ratio is ±{math.expm1(each.half):.0%}, over the limit of 10%"
            result[name] = ("REFUSED", why)
        else:
            claims.append((*_claim(each), name))
    level = (1 - CONFIDENCE) / 2
    standing = True
    for index, (p, claim, name) in enumerate(sorted(claims)):
        standing = standing and p <= level / (len(claims) - index)
        if standing:
            result[name] = (claim, None)
        elif p <= level:
            result[name] = ("AMBIGUOUS", f"it would be {claim} alone, but is not beside {len(claims) - 1} others")
        else:
            result[name] = ("AMBIGUOUS", None)
    return result


def _claim(found: Estimate) -> tuple[float, str]:
    """(one-sided p, claim) of the likeliest claim about a log-ratio."""
    mean = found.mean

    def beyond(distance: float) -> float:
        """p of a mean so far on the right side of a limit."""
        if found.error == 0:
            return 0.0 if distance > 0 else 1.0
        from scipy import stats

        return float(stats.t.sf(distance / found.error, found.freedom))

    return min(
        (beyond(-SAME - mean), "FASTER"),
        (beyond(mean - SAME), "SLOWER"),
        (max(beyond(SAME - mean), beyond(mean + SAME)), "SAME"),
    )


def vanished(samples: Sequence[Sample]) -> float | None:
    """time(2n) / time(n), when it is surely under 1.9: then work was left out of some calls. None: nothing was found.

    Blocks of n and of 2n calls on the same case are compared in each launch; literal runs have blocks of one length. Of noisy
    rounds nothing is said: what stalls a block once has as much of a long one.
    """
    changes: list[float] = []
    for found in by_launch([sample for sample in samples if not sample.dropped]).values():
        by_case: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for sample in found:
            by_case[sample.case][sample.calls].append(sample.seconds / sample.calls)
        for sizes in by_case.values():
            least = min(sizes)
            if 2 * least in sizes:
                changes.append(math.log(statistics.median(sizes[2 * least]) / statistics.median(sizes[least])))
    if len(changes) < 3 or interval(changes).high > math.log1p(-VANISHED):
        return None
    return 2 * math.exp(statistics.fmean(changes))


def amortised(alone: float, seconds: float) -> bool:
    """Whether a call on another input than the call before takes so much longer than one in a block that work was left out there.

    alone, seconds: of the fastest such call, and of a call in a block. The margin is for caches and sleeping threads.
    """
    return alone > 3 * seconds + 200e-6


def tail(samples: Sequence[Sample]) -> float | None:
    """The 99th percentile of seconds a call; None with fewer than TAIL_SAMPLES calls that were timed singly."""
    single = [sample.seconds for sample in samples if sample.calls == 1]
    return statistics.quantiles(single, n=100)[98] if len(single) >= TAIL_SAMPLES else None


def unfinished(leaks: Sequence[float], seconds: float) -> bool:
    """Whether computation was left undone when the clock stopped.

    leaks: for each kept block, how much longer the first reading of its outputs took than the second, in seconds. An
    output that is already there reads as fast the first time; one that is not makes every first reading compute it.
    """
    return bool(leaks) and min(leaks) > max(0.5 * seconds, 100e-6)
