"""The limits of rounding, on numbers alone."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xverify.verdict import limits as rule
from xverify.verdict.findings import Finding
from xverify.verdict.limits import UNIT, mean_with_doubt


def test_growth_is_half_the_root_of_the_number_of_terms():
    assert [rule.growth(n) for n in (1, 4, 16, 1600)] == [1.0, 1.0, 2.0, 20.0]


def test_ratio_is_the_residual_over_the_floor():
    size = np.full(8, 1.0)
    perturbed = np.full(8, (3 * UNIT) ** 2)
    own = np.full(8, (2 * UNIT) ** 2)
    floor = math.sqrt(25 * (9 + 1 / 3) + 4) * UNIT  # κ = 5 at 100 terms
    assert rule.ratio(np.full(8, (7 * floor) ** 2), perturbed, own, size, 100) == pytest.approx(7)


def test_a_residual_of_zero_is_equal_and_a_residual_without_a_floor_is_not():
    nothing = np.zeros(3)
    assert rule.ratio(nothing, nothing, nothing, nothing, 9) == 0.0
    assert rule.classify(rule.ratio(np.full(3, 1e-30), nothing, nothing, nothing, 9), rule.LAYER) == "DIFFERENT"


@pytest.mark.parametrize(
    ("ratio", "channel", "verdict"),
    [(4, 15, "EQUAL"), (4.01, 0, "DRIFT"), (0, 15.1, "DRIFT"), (40, 60, "DRIFT"), (40.1, 0, "DIFFERENT"),
     (0, 60.1, "DIFFERENT"), (math.nan, 0, "DIFFERENT"), (math.inf, 0, "DIFFERENT")],
)  # fmt: skip
def test_limits_of_a_layer(ratio, channel, verdict):
    assert rule.classify(ratio, rule.LAYER, channel) == verdict


def test_a_fault_counts_as_visible_from_where_it_is_different():
    assert rule.VISIBLE == rule.DRIFT_R


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(5, "EQUAL"), (5.01, "DRIFT"), (40, "DRIFT"), (40.1, "DIFFERENT"), (math.nan, "DIFFERENT")]
)
def test_limits_of_a_gradient(ratio, verdict):
    assert Finding("fc", 0, 0, "Linear", "gradient of weight", ratio, 0.0).verdict == verdict


@pytest.mark.parametrize(
    ("rho", "coherent", "verdict"),
    [(3, False, "EQUAL"), (3.1, False, "DRIFT"), (10.1, False, "DIFFERENT"), (29, True, "EQUAL"),
     (31, True, "DIFFERENT")],  # also for coherent rounding there is a limit
)  # fmt: skip
def test_limits_of_an_output(rho, coherent, verdict):
    assert rule.classify_rho(rho, coherent) == verdict


@pytest.mark.parametrize(
    ("rho", "complete", "away", "verdict"),
    [(2.9, False, math.inf, "EQUAL"), (5, False, 0, "DRIFT"), (15, False, 0, "DIFFERENT"), (15, True, 0, "EQUAL"),
     (15, True, 2.9, "EQUAL"), (15, True, 5, "DRIFT"), (15, True, 11, "DIFFERENT"), (5, True, 11, "DRIFT"),
     (15, True, math.inf, "DIFFERENT"), (31, True, 0, "DIFFERENT"), (math.nan, True, 0, "DIFFERENT")],
)  # fmt: skip
def test_clean_layers_excuse_an_output_only_where_all_were_compared_in_that_callable(rho, complete, away, verdict):
    assert rule.classify_rho(rho, complete, away) == verdict


@given(st.floats(1e-3, 1e3), st.integers(1, 10_000))
def test_the_ratio_does_not_depend_on_the_unit(scale, terms):
    residual, perturbed, own, size = (np.array([a, b]) * UNIT**2 for a, b in ((9, 4), (1, 2), (1, 1), (2, 5)))
    size = size / UNIT**2
    once = rule.ratio(residual, perturbed, own, size, terms)
    again = rule.ratio(*(scale**2 * values for values in (residual, perturbed, own, size)), terms)
    assert again == pytest.approx(once)


def test_a_tensor_of_another_shape_is_different():
    assert Finding("conv", 0, 0, "Conv2d", "output", 0.0, 0.0, reason="other shape").verdict == "DIFFERENT"


def test_samples_of_noise_that_differ_much_leave_doubt():
    assert mean_with_doubt([4.0]) == 4.0
    assert mean_with_doubt([4.0, 4.0, 4.0, 4.0]) == 4.0
    assert mean_with_doubt([0.0, 0.0, 0.0, 4.0]) == pytest.approx(3.0)
    assert mean_with_doubt([]) == 0.0
