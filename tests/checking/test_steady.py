import math

import numpy as np

from xverify.checking.steady import LONG_SUM, change
from xverify.verdict.limits import UNIT, growth

VALUES = np.random.default_rng(0).standard_normal(4096)


def test_equal_bits_have_no_change_missing_values_included():
    values = np.where(VALUES > 2, np.nan, VALUES)
    assert change(values, values.copy()) == 0.0
    assert change(values, VALUES) == math.inf
    assert change(VALUES, VALUES[:-1]) == math.inf


def test_another_order_of_a_sum_is_within_the_limit_and_noise_is_not():
    terms = np.random.default_rng(1).standard_normal((1000, 512)).astype(np.float32)
    one, other = terms.cumsum(axis=1)[:, -1], terms[:, ::-1].cumsum(axis=1)[:, -1]
    assert 0 < change(one, other) < growth(LONG_SUM) * UNIT
    assert change(VALUES, VALUES + 1e-4) > growth(LONG_SUM) * UNIT


def test_one_large_value_does_not_hide_the_change_of_the_others():
    large = VALUES.copy()
    large[0] = 1e30
    moved = large.copy()
    moved[1:] += 1e-3
    assert change(large, moved) > 1e-4


def test_whole_numbers_change_by_the_share_that_differs():
    assert change(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])) == 0.25
