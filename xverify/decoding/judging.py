"""Judges the values of one way: pure functions of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..results.verdicts import Verdict
from ..verdict.limits import CAP, EQUAL_C, EQUAL_RHO, LIFT, OUTPUT, classify
from ..weights.canonical import Array

TIE = 10.0  # noise floors; where the two best values of the reference are nearer, rounding decides which token is the best


@dataclass(frozen=True)
class Exact:
    """The reference's full pass in float64. tokens: (sequences, length). values, noise: (sequences, length, values) float64."""

    tokens: Array
    values: Array
    noise: Array

    def floors(self) -> Array:
        """The mean square of the noise of every position, (sequences, length), lifted where it is far below the usual one."""
        squares = np.mean(self.noise**2, -1)
        found: Array = squares + LIFT * np.median(squares)
        return found

    def detection_limit(self, counts: Array) -> float:
        """The smallest relative error of these positions that would not be EQUAL. counts: (sequences, length), which count."""
        with np.errstate(divide="ignore"):
            share = self.floors()[counts].sum() / np.square(self.values[counts]).mean(-1).sum()
        return float(EQUAL_RHO * np.sqrt(share))

    def margin(self, sequence: int, position: int, token: int) -> float:
        """How far another token is below the best one there, in noise floors. Infinite where there is no noise."""
        values, noise = self.values[sequence, position], self.noise[sequence, position]
        best = int(values.argmax())
        distance, floor = float(values[best] - values[token]), math.hypot(noise[best], noise[token])
        return distance / floor if floor else math.inf if distance else 0.0


@dataclass(frozen=True)
class Judged:
    """What was found of one way.

    ratio, worst: residual / noise floor of all positions, and of the worst one.
    limit: the smallest relative error of all positions that would not have been EQUAL. Above CAP, values that do not differ are
        UNTESTED.
    first: (sequence, position) of the earliest position that is not EQUAL by itself; None: there is none.
    token: (sequence, position, margin in noise floors) of the first position at which another token is the best; None: nowhere.
    """

    verdict: Verdict
    ratio: float
    worst: float
    limit: float
    compared: int
    first: tuple[int, int] | None = None
    token: tuple[int, int, float] | None = None


def judge(found: Array, exact: Exact, missing: list[int]) -> Judged:
    """Compare the values of every position.

    found: (sequences, length, values). missing: number of last positions of each sequence that are not computed.
    """
    length = exact.tokens.shape[1]
    counts = np.arange(length)[None] < length - np.array(missing)[:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        squares = np.mean((found.astype(np.float64) - exact.values) ** 2, -1)
    squares = np.where(np.isfinite(squares), squares, np.inf)
    floors = exact.floors()
    ratios = np.where(counts, np.sqrt(squares / floors), 0.0)
    ratio = float(np.sqrt(squares[counts].sum() / floors[counts].sum()))
    worst = float(ratios.max())
    verdict = classify(ratio, OUTPUT, worst)
    limit = exact.detection_limit(counts)
    if verdict == Verdict.EQUAL and not limit <= CAP:
        verdict = Verdict.UNTESTED
    if not np.isfinite(found[counts]).all():
        verdict = Verdict.INVALID
    token = _first_token(found, exact, counts)
    if token is not None and token[2] > TIE:
        verdict = max(verdict, Verdict.DIFFERENT)
    wrong = ratios > EQUAL_C
    differs = verdict not in (Verdict.EQUAL, Verdict.UNTESTED)
    if differs and not wrong.any():
        wrong = ratios == worst
    return Judged(verdict, ratio, worst, limit, int(counts.sum()), _earliest(wrong) if differs else None, token)


def _first_token(found: Array, exact: Exact, counts: Array) -> tuple[int, int, float] | None:
    """The first position with another best token: the earliest that is no tie, else the earliest."""
    best = np.where(np.isfinite(found), found, -np.inf).argmax(-1)
    other = np.argwhere(((best != exact.values.argmax(-1)) & counts).T)
    places = [(int(s), int(p), exact.margin(int(s), int(p), int(best[s, p]))) for p, s in other]
    return next((each for each in places if each[2] > TIE), places[0] if places else None)


def judge_tokens(found: Array, exact: Exact, prompt: int) -> tuple[int, int, float] | None:
    """(sequence, step, margin in noise floors) of the first token that differs, where each continued freely; None: none does.

    found: (sequences, length). After the first token that differs, a sequence is another one, and is not compared.
    """
    firsts = []
    for sequence, differ in enumerate(found[:, prompt:] != exact.tokens[:, prompt:]):
        if differ.any():
            step = prompt + int(differ.argmax())
            firsts.append((sequence, step, exact.margin(sequence, step - 1, int(found[sequence, step]))))
    broken = [each for each in firsts if each[2] > TIE]
    return min(broken or firsts, key=lambda each: each[1], default=None)


def _earliest(wrong: Array) -> tuple[int, int]:
    position, sequence = np.argwhere(wrong.T)[0]
    return int(sequence), int(position)
