"""Simulates runs of two equal adapters from recorded process runs, and checks the intervals of their time ratio.

An interval can be wrong in two ways. It may cover the truth too rarely, or it may be wider than it has to be. Coverage is checked
from below alone: Student's interval covers more than 95% when process runs have longer tails than a normal distribution, as those
of a machine with rare disturbances have, and this is not false. That an interval is needlessly wide shows in its width.

Both limits follow from the method, the number of simulated runs and CHANCE:

* Coverage. The nominal value is 95%. Process runs end when the interval is narrow enough, so runs whose spread comes out too
  small end too early. This takes up to two points from 95%, depending on the spread. How much it takes here is simulated with
  normal process runs of the same spread. The limit is that value, or 95% when it is lower, less the difference of two binomial
  shares that chance exceeds with a probability of CHANCE.
* Width. The distribution of the simulated process runs is known, so the ideal interval is known, too: z x sigma / sqrt(n), with
  the normal quantile z and the true standard deviation sigma. Student's interval is t x s / sqrt(n), and the mean of s is at
  most sigma for every distribution (Jensen's inequality). Its mean width is therefore at most t / z times the ideal width.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..timing import plan
from ..timing import statistics as timing
from .check import Check

SIMULATED = 5000  # runs
DRAWN = 20_000  # process runs from which they are drawn
LEAST_RECORDED = 20  # process runs that a simulation needs
NOMINAL = 0.95  # share of the intervals that should cover the truth
CHANCE = 0.01  # probability that a correct harness fails a check of a count


@dataclass(frozen=True)
class Simulated:
    """What many simulated runs found.

    covered: share of the runs whose interval covers the truth.
    widths: for each run, the width of its interval / the ideal width.
    bounds: for each run, the largest mean of this ratio that the method allows for its number of process runs.
    """

    covered: float
    widths: tuple[float, ...]
    bounds: tuple[float, ...]


def simulate(draw: Callable[[], float], spread: float) -> Simulated:
    """Simulate runs. draw: returns the log-ratio of one process run, whose true mean is 0. spread: its standard deviation."""
    from scipy import stats  # late: `xverify --help` and `list` need no statistics

    effort, level = plan.EFFORTS["standard"], (1 + NOMINAL) / 2
    z = statistics.NormalDist().inv_cdf(level)
    covered, widths, bounds = 0, [], []
    for _ in range(SIMULATED):
        medians: list[float] = []
        while not timing.enough([medians], effort):
            medians.append(draw())
        found = timing.interval(medians)
        covered += found.low <= 0.0 <= found.high
        widths.append(found.half / (z * spread / math.sqrt(len(medians))))
        bounds.append(float(stats.t.ppf(level, len(medians) - 1)) / z)
    return Simulated(covered / SIMULATED, tuple(widths), tuple(bounds))


def simulated_checks(process_runs: Sequence[Sequence[float]]) -> Iterator[Check]:
    """Check coverage and width of the intervals of runs that are simulated from recorded process runs of two equal adapters.

    Either adapter could be the first, so each process run is used with a random sign, and the true ratio is 1.

    process_runs: the log-ratios of the rounds of each process run.
    """
    names = (
        f"A/A, {SIMULATED:,} simulated runs: the interval covers 1",
        f"A/A, {SIMULATED:,} simulated runs: width / ideal width",
    )
    generator = random.Random(0)
    pool = list(_medians(process_runs, generator)) if len(process_runs) >= LEAST_RECORDED else []
    spread = math.sqrt(statistics.fmean(value**2 for value in pool)) if pool else 0.0
    if not spread:
        for name in names:
            yield Check(
                name, f"{len(process_runs)} process runs recorded", f"{LEAST_RECORDED} process runs or more", None
            )
        return
    simulated = simulate(lambda: generator.choice((-1, 1)) * generator.choice(pool), spread)
    normal = normal_coverage(spread)
    recorded = f"({len(process_runs)} recorded process runs of ±{spread:.2%})"
    least = least_coverage(normal)
    yield Check(
        names[0],
        f"{simulated.covered:.1%} {recorded}",
        f"{least:.1%} or more (normal process runs: {normal:.1%})",
        simulated.covered >= least,
    )
    width, most = statistics.fmean(simulated.widths), greatest_width(simulated)
    yield Check(names[1], f"{width:.3f}", f"{most:.3f} or less", width <= most)


def normal_coverage(spread: float) -> float:
    """The share of Student's intervals that cover the truth when process runs are normal, and end as those of the harness do."""
    from scipy import stats  # late: `xverify --help` and `list` need no statistics

    effort = plan.EFFORTS["standard"]
    values = np.random.default_rng(0).normal(0.0, spread, (SIMULATED, effort.most))
    going, covered = np.ones(SIMULATED, bool), 0
    for count in range(effort.least, effort.most + 1):
        means, deviations = values[:, :count].mean(axis=1), values[:, :count].std(axis=1, ddof=1)
        half = stats.t.ppf((1 + NOMINAL) / 2, count - 1) * deviations / math.sqrt(count)
        ends = going & ((half <= timing.NARROW) | (count == effort.most))
        covered += int(np.sum(np.abs(means[ends]) <= half[ends]))
        going &= ~ends
    return covered / SIMULATED


def least_coverage(normal: float) -> float:
    """The least share of covering intervals that passes. normal: the share with normal process runs."""
    error = math.sqrt(NOMINAL * (1 - NOMINAL) * 2 / SIMULATED)
    return min(normal, NOMINAL) - _quantile() * error


def greatest_width(found: Simulated) -> float:
    """The greatest mean width / ideal width that passes."""
    excess = [width - bound for width, bound in zip(found.widths, found.bounds)]
    error = statistics.stdev(excess) / math.sqrt(len(excess))
    return statistics.fmean(found.bounds) + _quantile() * error


def _quantile() -> float:
    """The normal quantile that chance exceeds with a probability of CHANCE."""
    return statistics.NormalDist().inv_cdf(1 - CHANCE)


def _medians(process_runs: Sequence[Sequence[float]], generator: random.Random) -> Iterator[float]:
    """Medians over the rounds of process runs; both the process run and its rounds are drawn at random, with replacement."""
    for _ in range(DRAWN):
        logs = generator.choice(process_runs)
        yield statistics.median(generator.choices(logs, k=len(logs)))
