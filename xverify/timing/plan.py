"""What to time: the number of rounds, the calls in each block, the order of the subjects, and when warm-up ends.

A process run times every subject in one fresh process each. It consists of rounds; in each round every subject runs one block
of calls, and all blocks of a round use the same input case.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BLOCK_SECONDS = 0.06  # in a shorter block, the clock and the scheduler would affect the result
RUN_SECONDS = 15.0  # timed seconds of all subjects together in one process run
MIN_ROUNDS = 8
MOST_ROUNDS = 100_000  # more would need much memory
LITERAL_ROUNDS = 20  # the greatest number of blocks that --rerun is divided into
STEADY = 0.05  # two windows of warm-up agree when they differ by at most this relative amount
SLOPE = 0.01  # a median change this small is no trend, even when every block changes in the same direction


@dataclass(frozen=True)
class Effort:
    """How much is timed for one level of ``--effort``.

    least, most: number of process runs.
    rounds: greatest number of rounds in one process run. It is smaller where there are many process runs, because the interval
        depends mainly on their number.
    """

    least: int
    most: int
    rounds: int


EFFORTS = {"quick": Effort(1, 1, 40), "standard": Effort(6, 12, 16), "rigorous": Effort(12, 20, 24)}


@dataclass(frozen=True)
class Plan:
    """The timed part of one process run.

    rounds: number of rounds.
    calls: subject -> number of calls in its block of each round.
    """

    rounds: int
    calls: Mapping[str, Sequence[int]]


def plan(
    seconds_per_call: Mapping[str, float],
    cases: int,
    rerun: int | None,
    most: int = EFFORTS["quick"].rounds,
    seconds: float = RUN_SECONDS,
    limit: float | None = None,
) -> Plan:
    """Plan the rounds of one process run and the calls of each block.

    seconds_per_call: subject -> seconds per call, measured in warm-up.
    cases: number of input cases; the plan uses each of them at least once when there are enough calls.
    rerun: exact number of timed calls of every subject, as in the Jittor performance test. None: the plan depends on time and
        alternates between blocks of n and of 2n calls, each for a whole cycle of cases (see ``statistics.vanished``).
    most: greatest number of rounds.
    seconds: time for all rounds. Independently of ``most`` and ``seconds``, there are at least MIN_ROUNDS rounds.
    limit: seconds after which no further round begins. When ``rerun`` calls take longer, the rounds are shorter, so that the run
        can end near its limit; None without a limit.
    """
    if rerun is not None:
        fastest = min(seconds_per_call.values())
        rounds = max(cases, min(LITERAL_ROUNDS, int(rerun * fastest / BLOCK_SECONDS)))
        if limit is not None:
            whole = rerun * sum(seconds_per_call.values())
            if whole > limit:
                rounds = max(rounds, math.ceil(whole / max(limit / LITERAL_ROUNDS, BLOCK_SECONDS)))
        rounds = min(rerun, rounds, MOST_ROUNDS)
        share = [rerun // rounds + (index < rerun % rounds) for index in range(rounds)]
        return Plan(rounds, dict.fromkeys(seconds_per_call, share))
    calls = {name: calls_a_block(t) for name, t in seconds_per_call.items()}
    round_seconds = 1.5 * sum(calls[name] * t for name, t in seconds_per_call.items())
    cycle = 2 * cases
    fitting = min(most, int(seconds / round_seconds))
    rounds = max(-(-MIN_ROUNDS // cycle) * cycle, fitting // cycle * cycle)
    return Plan(rounds, {name: [n * (1 + index // cases % 2) for index in range(rounds)] for name, n in calls.items()})


def calls_a_block(seconds: float) -> int:
    """The number of calls that fill a block. seconds: duration of one call."""
    return max(1, math.ceil(BLOCK_SECONDS / max(seconds, 1e-9)))


def orders(subjects: Sequence[str], rounds: int, seed: int) -> list[list[str]]:
    """The order of the subjects in each round: a random order, then its reverse, then a new random order, and so on."""
    generator = random.Random(seed)
    result: list[list[str]] = []
    for index in range(rounds):
        if index % 2:
            result.append(result[-1][::-1])
        else:
            result.append(generator.sample(list(subjects), len(subjects)))
    return result


def window(cases: int) -> int:
    """The number of blocks in one window of warm-up: whole cycles of the input cases, and at least four blocks."""
    return cases * -(-4 // cases)


def steady(blocks: Sequence[float], cases: int) -> bool:
    """Whether warm-up is over.

    The last window is compared with the window before it, block by block on the same input cases. Warm-up is over when the
    median change is at most STEADY and there is no trend: a trend is a change of all blocks in the same direction with a median
    above SLOPE.

    blocks: seconds per call of each block so far; the blocks use the input cases in turn.
    """
    size = window(cases)
    if len(blocks) < 2 * size:
        return False
    changes = [math.log(b / a) for a, b in zip(blocks[-2 * size : -size], blocks[-size:])]
    middle = statistics.median(changes)
    trend = all(change > 0 for change in changes) or all(change < 0 for change in changes)
    return abs(middle) <= STEADY and not (trend and abs(middle) > SLOPE)
