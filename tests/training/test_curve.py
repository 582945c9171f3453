"""The band of the reference's replicas, and how long and how strictly a loss curve is judged by it."""

import math

import pytest

from xverify.training.curve import BAND_WIDTHS, SPREADS, Band, judge_curve

STEPS = 40


def falling(growth, start=1e-7, rate=0.9):
    """A band around losses that fall, whose width is multiplied by ``growth`` in each step."""
    losses = [2.0 * rate**step for step in range(STEPS)]
    widths = [start * growth**step for step in range(STEPS)]
    low, high = ([loss + sign * width / 2 for loss, width in zip(losses, widths)] for sign in (-1, 1))
    return Band(tuple(losses), tuple(low), tuple(high))


def no_place(step):
    return ""


def test_a_narrow_band_is_judged_to_the_end():
    assert falling(1.0).judged == STEPS


def test_a_band_is_judged_until_its_width_reaches_the_change_of_the_loss():
    band = falling(2.0)
    step = band.judged
    assert 10 < step < STEPS
    assert BAND_WIDTHS * band.spreads[step] >= band.changes[step]
    assert BAND_WIDTHS * band.spreads[step - 1] < band.changes[step - 1]
    # It is judged beyond the step at which replicas are 0.1% of the loss apart, because training has changed the loss by far more.
    assert band.spreads[step - 1] > SPREADS["float32"] * band.losses[step - 1]


def test_a_wide_band_of_a_training_that_changes_nothing_is_not_judged():
    assert falling(1.0, start=0.01, rate=1.0).judged == 0


def test_the_change_of_the_loss_is_that_of_one_batch():
    losses = tuple(1.0 + step % 4 for step in range(STEPS))  # the four batches differ, and training changes nothing
    low, high = ([loss + sign * 0.01 for loss in losses] for sign in (-1, 1))
    assert Band(losses, tuple(low), tuple(high), batches=4).changes == [0.0] * STEPS
    assert Band(losses, tuple(low), tuple(high), batches=4).judged == 0


def test_a_width_that_is_not_finite_ends_the_judged_steps():
    band = falling(1.0)
    assert Band(band.losses, band.low, (*band.high[:7], math.nan, *band.high[8:])).judged == 7


def test_curves_that_cross_leave_the_band_as_wide_as_it_was():
    band = falling(1.0, start=1e-4)
    crossing = Band(band.losses, (*band.low[:20], *band.losses[20:]), (*band.high[:20], *band.losses[20:]))
    assert crossing.spreads[-1] == pytest.approx(1e-4)


@pytest.mark.parametrize(("distance", "verdict"), [(0.5, "EQUAL"), (2.0, "DRIFT")])
def test_a_curve_may_leave_the_band_by_ten_times_its_width(distance, verdict):
    band = falling(1.0, start=1e-3)
    losses = [loss + distance * BAND_WIDTHS * 1e-3 for loss in band.losses]
    curve = judge_curve(band, losses, ["eps-hat"], no_place)
    assert curve.verdict == verdict
    assert ("at step 0 the loss is 2.02 and the reference's 2: 0.02 apart" in curve.says) == (verdict == "DRIFT")
    assert curve.says.endswith("(eps-hat)") == (verdict == "DRIFT")


def test_steps_after_the_band_says_nothing_are_not_compared():
    band = falling(2.0)
    losses = [*band.losses[: band.judged], *(5.0 for _ in range(STEPS - band.judged))]
    assert judge_curve(band, losses, [], no_place).verdict == "EQUAL"
    losses[band.judged - 1] = 5.0
    assert judge_curve(band, losses, [], no_place).verdict == "DRIFT"
