import math

import numpy as np
import pytest

from xverify.verdict.sizes import LEAST, PART, norm, rms

VALUES = np.random.default_rng(0).standard_normal(1000)


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e-155, 1.0, 1e155, 1e200, 1e300])
def test_no_scale_underflows_or_overflows(scale):
    expected = math.sqrt(float(np.square(VALUES).mean()))
    assert rms(VALUES * scale) / scale == pytest.approx(expected, rel=1e-6)
    assert rms(VALUES * scale, -VALUES * scale) / scale == pytest.approx(2 * expected, rel=1e-6)
    assert norm(VALUES * scale) / scale == pytest.approx(expected * math.sqrt(1000), rel=1e-6)


def test_values_that_are_not_finite_are_left_out_where_both_have_them():
    one, other = np.array([1.0, np.inf, np.nan, 3.0]), np.array([2.0, np.nan, np.inf, 4.0])
    assert rms(one) == math.sqrt(5)
    assert rms(one, other) == 1.0
    assert rms(one, np.array([1.0, 2.0, np.nan, 3.0])) == math.inf
    assert rms(np.array([np.nan])) == rms(np.zeros(3)) == rms(np.zeros(0)) == 0.0


def test_a_large_array_is_read_in_parts():
    values = np.full(PART + 3, 3.0, np.float32)
    assert rms(values) == 3.0
    assert rms(values * np.float32(1e-30)) == pytest.approx(3e-30)
    assert LEAST < 1e-60  # squares of float32 need no division


def test_a_difference_beyond_the_largest_number_is_infinite():
    assert rms(np.array([1.7e308]), np.array([-1.7e308])) == math.inf
