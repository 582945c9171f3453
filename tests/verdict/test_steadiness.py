"""Two calls on one input: what rounding explains, and what it does not."""

import numpy as np
import pytest

from xverify.verdict.limits import OWN_EQUAL, UNIT
from xverify.verdict.steadiness import change

TRUTH = np.random.default_rng(0).standard_normal((64, 64))
FIRST = TRUTH.astype(np.float32)


def compared(again, first=FIRST, truth=TRUTH, floors=None):
    return change({"0/y": first}, {"0/y": again}, {"0/y": truth}, {"0/y": truth.astype(first.dtype)}, floors)


@pytest.mark.parametrize(("floors", "limit"), [({"0/y": UNIT}, 3.0), (None, OWN_EQUAL)])
def test_rounding_in_another_order_is_no_randomness_and_noise_is(floors, limit):
    assert not compared(FIRST, floors=floors).random
    assert not compared(np.nextafter(FIRST, np.float32(0)), floors=floors).random
    noise = np.random.default_rng(1).standard_normal(FIRST.shape)
    found = compared((FIRST * (1 + 40 * UNIT * noise)).astype(np.float32), floors=floors)
    assert found.random
    assert not found.large
    assert found.limit == limit
    assert found.share == pytest.approx(40 * UNIT, rel=0.1)
    assert found.error < UNIT  # the first call alone is right
    assert compared((FIRST * (1 + 1e-2 * noise)).astype(np.float32), floors=floors).large


def test_whole_numbers_and_missing_values_have_no_rounding():
    whole = np.arange(10)
    assert not compared(whole, whole, whole).random
    assert compared(whole + (whole == 3), whole, whole).random
    gap = FIRST.copy()
    gap[0, 0] = np.nan
    assert compared(gap).random
    assert not compared(gap, gap).random
