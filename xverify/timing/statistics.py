"""Computes means, ratios, intervals and verdicts from timed samples. Every function is pure.

The method is that of the Jittor performance test (warm up, repeat many times, synchronise before and after), with the blocks of
all subjects interleaved, so that a change of the machine's speed affects all of them alike. Fresh processes differ more from
each other than blocks within one process do (Kalibera & Jones, "Rigorous benchmarking in reasonable time", 2013). An interval
therefore counts process runs, which samples and result files call launches, and not blocks.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ..results.records import Sample
from .plan import Effort

CONFIDENCE = 0.95
SAME = math.log(1.02)  # a ratio within ±2% is too small a difference to act on
NARROW = math.log(1.02)  # process runs end when half the width of every interval is at most this
WIDE = math.log(1.10)  # an interval with more than this half width allows no verdict
TAIL_SAMPLES = 1000  # least number of single calls for a 99th percentile
VANISHED = 0.05  # when 2n calls take less than 1.9 times as long as n calls, some calls may not have done their work
MARGIN, WAKE_SECONDS = 2, 200e-6  # a first call may take longer than the others by this many calls and seconds
# On a busy machine, the first reading of computed outputs took up to 0.2 ms longer than the second. Less than this many seconds is
# therefore no sign of unfinished computation.
UNFINISHED_SECONDS = 500e-6
# Quiet pairs of a call on a new input and the same call again: their least number, and the share that must show the difference.
LEAST_PAIRS, SHOWN = 3, 0.9


@dataclass(frozen=True)
class Interval:
    """A mean with the ends of its 95% Student-t interval."""

    mean: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error, and the degrees of freedom of the standard error."""

    mean: float
    error: float
    freedom: float

    @property
    def half(self) -> float:
        """Half the width of the 95% Student-t interval."""
        return student(self.freedom) * self.error


@cache
def student(freedom: float) -> float:
    """Student's quantile for a two-sided interval of CONFIDENCE, with this number of degrees of freedom."""
    from scipy import stats  # late: `xverify --help` and `list` need no statistics

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))


def estimate(values: Sequence[float]) -> Estimate:
    """The estimated mean of at least two values."""
    return Estimate(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)), len(values) - 1)


def change(old: Sequence[float], new: Sequence[float]) -> Estimate:
    """mean(new) - mean(old) of two independent samples of at least two values each (Welch 1947)."""
    a, b = estimate(old), estimate(new)
    error = math.hypot(a.error, b.error)
    parts = a.error**4 / a.freedom + b.error**4 / b.freedom
    return Estimate(b.mean - a.mean, error, error**4 / parts if parts else a.freedom + b.freedom)


def interval(values: Sequence[float]) -> Interval:
    """The mean and its Student-t interval. For a single value both ends are infinite."""
    if len(values) < 2:
        return Interval(values[0], -math.inf, math.inf)
    estimated = estimate(values)
    return Interval(estimated.mean, estimated.mean - estimated.half, estimated.mean + estimated.half)


def clean(samples: Iterable[Sample]) -> list[Sample]:
    """The samples of rounds without noise, or all samples when every round is noisy."""
    everything = list(samples)
    return [sample for sample in everything if not sample.dropped] or everything


def seconds_per_call(samples: Sequence[Sample], baseline: Sequence[Sample] = ()) -> Interval:
    """Seconds per call: the geometric mean, over process runs, of the median over the rounds of each.

    This is the estimator of ``ratio``. With a baseline, the seconds are those of the baseline times the ratio to it. So the
    seconds of two subjects never contradict their ratio, even when the machine changes its speed between two rounds.
    The interval counts process runs. With one process run it counts blocks.

    baseline: samples of the subject that ratios refer to; without it, or when no round has both, the subject's own rounds count.
    """
    own = [statistics.median(logs) for logs in _log_seconds(samples).values()]
    counted = own if len(own) > 1 else next(iter(_log_seconds(samples).values()))
    found = ratio(samples, baseline)
    mean = math.exp(statistics.fmean(own)) if found is None else found.mean * seconds_per_call(baseline).mean
    spread = math.exp(interval(counted).half)
    return Interval(mean, mean / spread, mean * spread)


def process_run_seconds(samples: Sequence[Sample]) -> list[float]:
    """Seconds per call of each process run: the median over its rounds."""
    return [math.exp(statistics.median(logs)) for logs in _log_seconds(samples).values()]


def _log_seconds(samples: Sequence[Sample]) -> dict[int, list[float]]:
    """Number of the process run -> log(seconds per call) of each of its rounds."""
    return {
        run: [math.log(sample.seconds / sample.calls) for sample in found]
        for run, found in by_process_run(samples).items()
    }


def by_process_run(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    """Number of the process run -> its samples."""
    process_runs: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        process_runs[sample.launch].append(sample)
    return process_runs


def log_ratios(samples: Sequence[Sample], baseline: Sequence[Sample]) -> dict[int, list[float]]:
    """Number of the process run -> log(time of the subject / time of the baseline) of each round that has both."""
    theirs = {(sample.launch, sample.round): sample.seconds / sample.calls for sample in baseline}
    found: dict[int, list[float]] = defaultdict(list)
    for sample in samples:
        other = theirs.get((sample.launch, sample.round))
        if other:
            found[sample.launch].append(math.log(sample.seconds / sample.calls / other))
    return found


def ratio(samples: Sequence[Sample], baseline: Sequence[Sample]) -> Interval | None:
    """Time of a subject divided by time of the baseline. None when no round has both.

    It is the mean, with its Student-t interval, over process runs of the median over the rounds of each. With one process run it
    is the median of its rounds with the interval of the rounds, which says nothing about other process runs.
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


def enough(medians: Iterable[Sequence[float]], effort: Effort) -> bool:
    """Whether there are enough process runs.

    The decision depends on the width of the intervals alone. A decision by the position of the intervals would bias the verdict.

    medians: for each subject, its log-ratio to the baseline in each process run.
    """
    counts = [list(each) for each in medians]
    if not counts:
        return True
    fewest = min(len(each) for each in counts)
    if fewest >= effort.most:
        return True
    return fewest >= effort.least and all(len(each) > 1 and interval(each).half <= NARROW for each in counts)


def verdicts(found: Mapping[str, Estimate]) -> dict[str, tuple[str, str | None]]:
    """The verdict on each subject (FASTER, SLOWER, SAME, AMBIGUOUS or REFUSED), with a reason where one is needed.

    Each subject has one claim, the likeliest of three: its ratio is below 0.98 (FASTER), above 1.02 (SLOWER), or between (SAME).
    A single claim holds when the whole 95% interval lies in its range. Several claims are tested by Holm's step-down procedure
    (Scandinavian Journal of Statistics 6, 1979), which keeps the probability of any false claim at 5%.

    found: subject -> its log-ratio to the baseline, estimated over process runs.
    """
    result: dict[str, tuple[str, str | None]] = {}
    claims: list[tuple[float, str, str]] = []
    for name, each in found.items():
        if each.half > WIDE:
            why = f"process runs differ too much: the interval of the ratio is ±{math.expm1(each.half):.0%}, the limit is ±10%"
            result[name] = ("REFUSED", why)
        else:
            claims.append((*_claim(each), name))
    level = (1 - CONFIDENCE) / 2
    holds = True  # Holm: once a claim fails, all less likely claims fail
    for index, (p, claim, name) in enumerate(sorted(claims)):
        holds = holds and p <= level / (len(claims) - index)
        if holds:
            result[name] = (claim, None)
        elif p <= level:
            why = f"it would be {claim} if it were compared alone, but not among {len(claims)} comparisons"
            result[name] = ("AMBIGUOUS", why)
        else:
            result[name] = ("AMBIGUOUS", None)
    return result


def _claim(found: Estimate) -> tuple[float, str]:
    """The one-sided p-value and the name of the likeliest claim about a log-ratio."""
    from scipy import stats  # late: `xverify --help` and `list` need no statistics

    mean = found.mean

    def beyond(distance: float) -> float:
        """The p-value of a mean that lies this far on the claimed side of a limit; negative: on the other side."""
        if found.error == 0:
            return 0.0 if distance > 0 else 1.0

        return float(stats.t.sf(distance / found.error, found.freedom))

    return min(
        (beyond(-SAME - mean), "FASTER"),
        (beyond(mean - SAME), "SLOWER"),
        (max(beyond(SAME - mean), beyond(mean + SAME)), "SAME"),
    )


@dataclass(frozen=True)
class Growth:
    """How the seconds of a block grow with its calls: they are ``fixed + calls * call``.

    ratio: time(2n calls) / time(n calls). calls: n. fixed: seconds of a block that do not depend on its calls.
    call: seconds that one more call adds.
    """

    ratio: float
    calls: int
    fixed: float
    call: float


def vanished(samples: Sequence[Sample]) -> Growth | None:
    """How blocks grow, when it shows that most calls did not do the work that the first or the last one did; else None.

    Blocks of n and of 2n calls on the same input case are compared within each process run. A block may take some time whatever
    its calls, for example to wake threads or to synchronise. What blocks without any call take, where they were timed, is
    subtracted first. The rest of the fixed time is a sign of work that is missing from the calls only when two conditions are
    significant: time(2n) is below 1.9 times time(n), and the fixed time is longer than MARGIN calls.

    Runs with --rerun have blocks of one length, so nothing is found there. Noisy rounds are left out: one interruption adds the
    same time to a short and to a long block, and so looks like a fixed time.
    """
    growths = [each for sizes in _by_case(samples) if (each := _growth(sizes)) is not None]
    if len(growths) < 3 or interval([math.log(each.ratio / 2) for each in growths]).high > math.log1p(-VANISHED):
        return None
    if interval([each.fixed - _margin(max(0.0, each.call)) for each in growths]).low <= 0:
        return None
    return Growth(
        ratio=math.exp(statistics.fmean(math.log(each.ratio) for each in growths)),
        calls=growths[-1].calls,
        fixed=statistics.fmean(each.fixed for each in growths),
        call=statistics.fmean(max(0.0, each.call) for each in growths),
    )


def _by_case(samples: Sequence[Sample]) -> list[dict[int, list[float]]]:
    """For each process run and input case: number of calls -> seconds of its quiet blocks."""
    result: list[dict[int, list[float]]] = []
    for found in by_process_run([sample for sample in samples if not sample.dropped]).values():
        by_case: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for sample in found:
            by_case[sample.case][sample.calls].append(sample.seconds)
        result += by_case.values()
    return result


def _growth(sizes: Mapping[int, Sequence[float]]) -> Growth | None:
    """The growth of the blocks on one input case; None without blocks of n and of 2n calls."""
    empty = statistics.median(sizes.get(0, [0.0]))  # what synchronisation alone takes
    least = min(calls for calls in sizes if calls)
    if 2 * least not in sizes:
        return None
    short, long = (statistics.median(sizes[calls]) - empty for calls in (least, 2 * least))
    if min(short, long) <= 0:
        return None
    return Growth(long / short, least, 2 * short - long, (long - short) / least)


def _margin(call: float) -> float:
    """The additional seconds that a first call may take: caches have to be filled, and threads to be woken."""
    return MARGIN * call + WAKE_SECONDS


def amortised(alone: float, seconds: float) -> bool:
    """Tell whether results may be remembered, because a call on a new input takes longer than one on a repeated input.

    alone: seconds of the fastest call whose input differs from that of the call before.
    seconds: seconds per call in a block, whose calls all have one input.
    """
    return alone - seconds > _margin(seconds)


def remembered(pairs: Sequence[tuple[float, float]], seconds: float) -> tuple[float, float] | None:
    """Medians of (a call on a new input, the same call again) when nearly every pair shows that results are remembered; else None.

    Both calls of a pair are blocks of one call, so what every block takes is in both and cancels.

    pairs: seconds of both calls, of quiet pairs. seconds: seconds per call in a block.
    """
    shown = sum(new - same > _margin(seconds) for new, same in pairs)
    if len(pairs) < LEAST_PAIRS or shown < SHOWN * len(pairs):
        return None
    return statistics.median(new for new, _ in pairs), statistics.median(same for _, same in pairs)


def tail(samples: Sequence[Sample]) -> float | None:
    """The 99th percentile of seconds per call; None when fewer than TAIL_SAMPLES calls were timed one by one."""
    single = [sample.seconds for sample in samples if sample.calls == 1]
    return statistics.quantiles(single, n=100)[98] if len(single) >= TAIL_SAMPLES else None


def unfinished(leaks: Sequence[float], seconds: float) -> bool:
    """Whether some computation was not finished when the clock stopped.

    An output that is already computed is read as fast the first time as the second. An output that is not makes every first
    reading wait for it.

    leaks: for each block whose outputs were kept, seconds of the first reading minus seconds of the second.
    seconds: seconds per call.
    """
    return bool(leaks) and min(leaks) > max(0.5 * seconds, UNFINISHED_SECONDS)
