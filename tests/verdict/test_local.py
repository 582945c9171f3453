"""Ratios in groups of values, on arrays alone."""

import numpy as np
import pytest

from xverify.verdict.limits import EQUAL_C, UNIT
from xverify.verdict.local import local, local_of
from xverify.verdict.tables import Table, spread

RANDOM = np.random.default_rng(7)
SHAPE = (8, 6, 40)
EXACT = RANDOM.standard_normal(SHAPE)
NOISE = np.full(SHAPE, 1e-6)


def residual(noise=NOISE, times=1.0):
    return times * noise * np.random.default_rng(3).standard_normal(noise.shape)


def test_noise_alone_is_far_below_the_limit():
    found = local(EXACT, residual(), NOISE)
    assert 0.5 < found.ratio < 4
    assert found.whole == pytest.approx(1.0, abs=0.1)
    assert (found.determined, found.undetermined) == (EXACT.size, 0)


WILD = {
    "a masked class": lambda y: _at(y, (slice(None), 2), -1e9),
    "one channel x 1e8": lambda y: _at(y, (slice(None), 2), y[:, 2] * 1e8),
    "one item x 1e6": lambda y: _at(y, 3, y[3] * 1e6),
    "scattered values x 1e12": lambda y: np.where(np.random.default_rng(1).random(y.shape) < 0.08, y * 1e12, y),
}


def _at(y, place, values):
    y = y.copy()
    y[place] = values
    return y


@pytest.mark.parametrize("wild", WILD)
def test_large_values_hide_no_fault_of_the_others(wild):
    exact = WILD[wild](EXACT)
    noise = np.maximum(1e-6, UNIT * np.abs(exact))
    assert local(exact, residual(noise), noise).ratio < 4
    wrong = residual(noise)
    wrong[:, 1] += np.where(np.abs(exact[:, 1]) < 10, 1e-4 * exact[:, 1], 0.0)
    found = local(exact, wrong, noise)
    assert found.ratio > EQUAL_C
    assert found.whole < 1.5 or wild == "scattered values x 1e12"


def test_a_fault_of_one_item_or_one_place_of_the_last_axis_shows():
    for place in (np.s_[5], np.s_[..., 11]):
        wrong = residual()
        wrong[place] += 3e-5
        assert local(EXACT, wrong, NOISE).ratio > EQUAL_C


@pytest.mark.parametrize(("size", "wrong"), [(1.0, False), (10.0, False), (100.0, True)])
def test_values_without_a_digit_are_compared_with_their_own_noise_and_are_told(size, wrong):
    noise = NOISE.copy()
    noise[3, 0] = 1.0
    noise[4, 0, 7] = np.nan  # nothing is known of this one
    away = residual()
    away[3, 0] = size
    away[4, 0, 7] = 1e9
    found = local(EXACT, away, noise)
    assert (found.ratio > EQUAL_C) == wrong
    assert found.undetermined == 41 - int((np.abs(EXACT[3, 0]) > 8).sum())
    assert found.where[0] == (3, 0, 0)


def test_a_floor_of_zero_is_that_of_its_neighbours_without_a_digit():
    """As behind a clamp at zero: half of the perturbations of a value are cut off, and of some values all."""
    exact, noise, away = EXACT.copy(), NOISE.copy(), residual()
    exact[:, 2], noise[:, 2] = 0.0, np.where(np.random.default_rng(4).random((8, 40)) < 0.2, 0.0, 1e-3)
    away[:, 2] = 1e-3
    assert local(exact, away, noise).ratio < 4
    away[:, 2] = 1.0
    assert local(exact, away, noise).ratio > EQUAL_C
    away[:, 2], away[0, 1, 0], exact[0, 1] = 0.0, 1e-4, 0.0  # exact zeros without such a neighbour
    noise[0, 1] = 0.0
    assert local(exact, away, noise).ratio > EQUAL_C


@pytest.mark.parametrize("scale", [1e-200, 1e-150, 1e150, 1e200])
def test_no_square_underflows_or_overflows(scale):
    found = local(EXACT * scale, residual() * scale, NOISE * scale)
    assert 0.5 < found.ratio < 4
    assert local(EXACT * scale, 2 * EXACT * scale, NOISE * scale).ratio > 1e5


def test_the_detection_limit_is_that_of_the_median_group():
    exact = WILD["a masked class"](EXACT)
    found = local(exact, residual(), NOISE)
    assert 1e-7 < found.floor_share < 1e-5  # a relative error of the ordinary values, not of those at -1e9
    assert found.worst_share >= found.floor_share


def test_a_sample_of_a_large_tensor_has_every_index():
    exact = np.random.default_rng(2).standard_normal((4, 32, 60, 60))
    wrong = np.zeros(exact.shape)
    wrong[:, 17] = 1e-3

    def compared(places, values):
        return wrong.reshape(-1)[places], np.full(values.shape, 1e-6)

    assert local_of(exact, compared, most=2**14).ratio > EQUAL_C


def test_a_table_holds_for_other_items():
    exact = np.random.default_rng(2).standard_normal((8, 16, 50))
    noise = np.broadcast_to(np.geomspace(1e-7, 1e-5, 16)[:, None], exact.shape)
    measured = noise[:1] * np.abs(np.random.default_rng(5).standard_normal(exact[:1].shape))
    found = spread(exact, exact[:1], measured)
    assert found.shape == exact.shape
    assert local(exact, residual(noise), found).ratio < EQUAL_C
    wrong = residual(noise)
    wrong[:, 2] += 1e-4
    assert local(exact, wrong, found).ratio > EQUAL_C


def test_a_table_of_values_without_a_digit_is_infinite():
    exact = np.random.default_rng(2).standard_normal((4, 6))
    table = Table.of(exact, lambda places: np.full(places.shape, 1.0), 1, exact.size)
    assert np.isinf(table.squares).all()
    assert local(exact, exact, spread(np.vstack([exact, exact]), exact, np.ones(exact.shape))[:4]).undetermined == 24


@pytest.mark.parametrize(("size", "accused"), [(1.0, False), (100.0, True)])
def test_values_without_a_digit_and_without_an_index_of_several_are_compared_together(size, accused):
    """Each index of the only axis has one value, so only the group of all of them tells."""
    exact, noise = np.zeros(16), np.full(16, 1e-3)
    found = local(exact, size * noise, noise)
    assert found.undetermined == 16
    assert (found.ratio > EQUAL_C) == accused
    # In a training step, noise that is larger than a value has no certain size.
    assert local(exact, size * noise, noise, certain=True).ratio == 0
