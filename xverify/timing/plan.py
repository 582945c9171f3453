"""What to run: how many rounds, how many calls a block, in which order, and when warm-up is over."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BLOCK_SECONDS = 0.06  # a shorter block would measure the clock and the scheduler
LAUNCH_SECONDS = 15.0  # timed seconds of all subjects together in one launch
MIN_ROUNDS = 8
LITERAL_ROUNDS = 20  # --rerun is cut into at most so many blocks
STEADY = 0.05  # by how much two windows of warm-up may differ
SLOPE = 0.01  # a change from window to window that is no trend even when every block shows it


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
