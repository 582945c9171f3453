"""The judging of one way, on arrays."""

import numpy as np

from xverify.decoding.comparison import token_says
from xverify.decoding.judging import Exact, judge, judge_tokens
from xverify.results.verdicts import Verdict

RANDOM = np.random.default_rng(0)
VALUES = RANDOM.normal(size=(2, 8, 32))
NOISE = np.full(VALUES.shape, 1e-6)
EXACT = Exact(RANDOM.integers(0, 32, (2, 8)), VALUES, NOISE)


def near(scale=1.0):
    """Values that are as far from the exact ones as noise is."""
    return VALUES + scale * 1e-6 * np.random.default_rng(1).normal(size=VALUES.shape)


def test_noise_is_equal():
    judged = judge(near(), EXACT, [0, 0])
    assert judged.verdict == Verdict.EQUAL
    assert 0.8 < judged.ratio < 1.2
    assert (judged.compared, judged.first, judged.token) == (16, None, None)
    assert 2e-6 < judged.limit < 4e-6


def test_noise_that_would_hide_a_fault_makes_a_way_untested():
    exact = Exact(EXACT.tokens, VALUES, np.full(VALUES.shape, 1e-2))
    judged = judge(near(), exact, [0, 0])
    assert judged.verdict == Verdict.UNTESTED
    assert 0.02 < judged.limit < 0.04
    assert judged.first is None
    assert judge(VALUES + 1.0, exact, [0, 0]).verdict == Verdict.DIFFERENT
    assert judge(near(), Exact(EXACT.tokens, VALUES, np.full(VALUES.shape, np.inf)), [0, 0]).verdict == Verdict.UNTESTED


def test_one_wrong_position_is_different_and_named():
    found = near()
    found[1, 3] += 1e-4
    found[0, 5] += 1e-3
    judged = judge(found, EXACT, [0, 0])
    assert judged.verdict == Verdict.DIFFERENT
    assert judged.first == (1, 3)


def test_positions_that_padding_leaves_out_do_not_count():
    found = near()
    found[1, 6:] = np.nan
    assert judge(found, EXACT, [0, 2]).verdict == Verdict.EQUAL
    assert judge(found, EXACT, [0, 1]).verdict == Verdict.INVALID


def test_difference_that_is_small_everywhere_names_its_worst_position():
    judged = judge(near(5.0), EXACT, [0, 0])
    assert judged.verdict == Verdict.DRIFT
    assert judged.first is not None


def test_tie_is_no_failure_and_another_token_is_one():
    values = VALUES.copy()
    best = int(values[0, 4].argmax())
    other = (best + 1) % 32
    values[0, 4, other] = values[0, 4, best] - 1e-6
    exact = Exact(EXACT.tokens, values, NOISE)
    found = values.copy()
    found[0, 4, other] += 2e-6
    tie = judge(found, exact, [0, 0])
    assert tie.verdict == Verdict.EQUAL
    assert tie.token is not None
    assert tie.token[:2] == (0, 4)
    assert tie.token[2] < 1
    assert token_says(*tie.token).endswith("rounding decides")
    values[0, 4, other] -= 1e-3
    found[0, 4, other] += 1e-3
    broken = judge(found, exact, [0, 0])
    assert broken.verdict == Verdict.DIFFERENT
    assert broken.token is not None
    assert broken.token[2] > 100


def test_free_tokens_are_compared_until_the_first_that_differs():
    tokens = EXACT.tokens.copy()
    assert judge_tokens(tokens, EXACT, 4) is None
    tokens[1, 5] = (VALUES[1, 4].argmax() + 1) % 32
    tokens[1, 6:] = 0
    sequence, step, margin = judge_tokens(tokens, EXACT, 4)
    assert (sequence, step) == (1, 5)
    assert margin > 10
