"""Where a ReLU crosses its kink by rounding, what differs after the step is compared by the noise of more rounding."""

import numpy as np
import pytest

from xverify.training.compared import Compared
from xverify.training.own_kinks import beyond_kinks
from xverify.training.own_made import Weight
from xverify.training.own_step import Weights

ROUNDING, KINK = 1e-8, 1e-5  # the noise of float32, and that of a gradient in which rounding decides on a kink


def step(error, noise=ROUNDING, names=("first", "second")):
    """The update of a step in which these weights differ by so much."""
    draw = np.random.default_rng(0)
    every = []
    for name in names:
        change = draw.standard_normal(50) * 1e-3
        after, apart = draw.standard_normal(50), error * draw.standard_normal(50)
        compared = Compared.of(apart, change, np.full(50, noise))
        every.append(Weight(name, after + apart, after, change, compared, (name,)))
    return Weights("update", every, [each for each in every if each.differs])


def noise(**sizes):
    """The noise of a step: name -> its size."""
    return {f"noise/change/{name}": np.full(50, size) for name, size in sizes.items()}


SMOOTH = noise(first=ROUNDING, second=ROUNDING)
MORE = noise(first=100 * ROUNDING, second=100 * ROUNDING)  # of smooth functions with more rounding
KINKED = noise(first=KINK, second=KINK)


@pytest.mark.parametrize(
    ("coarse", "explained"),
    [
        ([MORE, KINKED], True),
        ([MORE, noise(first=KINK, second=100 * ROUNDING + KINK / 10)], True),  # one weight shows the kink for both
        ([KINKED, noise(first=KINK / 20, second=KINK / 20)], True),  # the moments keep an earlier step
        ([MORE, noise(first=KINK / 20, second=KINK / 20)], False),  # no step shows a kink
        ([MORE, MORE], False),
    ],
)
def test_what_a_kink_explains_is_no_fault(coarse, explained):
    update = step(KINK / 20)
    assert len(update.failing) == 2
    found = beyond_kinks(update, coarse, [SMOOTH, SMOOTH])
    assert (found.failing == ()) is found.kinked is explained


def test_more_than_a_kink_explains_stays_a_fault():
    update = step(10 * KINK)
    assert beyond_kinks(update, [MORE, KINKED], [SMOOTH, SMOOTH]) is update
