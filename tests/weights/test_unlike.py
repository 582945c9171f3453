"""Weights that are the reference's but for some values are told; those that a converter folds, rounds or renames are not."""

import numpy as np
import pytest

from xverify.weights.unlike import unlike

RANDOM = np.random.default_rng(0)
TABLE = RANDOM.standard_normal((100, 8)).astype(np.float32)
PRUNED = TABLE * (RANDOM.random(TABLE.shape) < 0.2)


def changed(array, *place, by=0.5):
    array = array.copy()
    array[place] += by
    return array


@pytest.mark.parametrize(
    ("file", "reference", "says"),
    [
        ({"e": changed(TABLE, 43, 2)}, {"e": TABLE}, "e has other values in 1 of 100 rows (43): e[43, 2] is"),
        ({"a": changed(TABLE, 99)}, {"b": TABLE}, "a, the reference's b, has other values in 1 of 100 rows (99)"),
        ({"e": changed(TABLE, slice(5, 9))}, {"e": TABLE, "tied": TABLE}, "in 4 of 100 rows (5, 6, 7, …)"),
        ({"b": changed(TABLE[0], 3)}, {"b": TABLE[0]}, "b has other values: b[3] is"),
        ({"i": changed(np.arange(50), 7, by=1)}, {"i": np.arange(50)}, "i has other values: i[7] is 8"),
        ({"e": changed(TABLE, 43).astype(np.float16)}, {"e": TABLE}, "in 1 of 100 rows (43)"),
    ],
)
def test_some_other_values_are_told(file, reference, says):
    (found,) = unlike(file, reference)
    assert says in found


@pytest.mark.parametrize(
    ("file", "reference"),
    [
        ({"e": TABLE}, {"e": TABLE}),
        ({"e": TABLE * 1.5}, {"e": TABLE}),  # folded
        ({"e": PRUNED * 1.5}, {"e": PRUNED}),  # folded, and most values are zero
        ({"e": TABLE.astype(np.float16)}, {"e": TABLE}),
        ({"e": changed(TABLE, 3, by=2e-5)}, {"e": TABLE}),  # sines of another library
        ({"e": changed(TABLE, 3)}, {"f": TABLE, "g": TABLE + 1}),  # which one it is is not known
        ({"e": changed(TABLE, 3)[:, :4]}, {"e": TABLE}),
        ({"m": np.float32([0, -65504])}, {"m": np.float32([0, -3e38])}),
        ({"s": np.float32(3)}, {"s": np.float32(2)}),
        ({"i": np.int8([1, 2, 4])}, {"i": np.float32([1, 2, 3])}),
        ({"1": TABLE, "2": TABLE + 1}, {"1": TABLE + 1, "2": TABLE}),
    ],
)
def test_what_a_right_converter_does_is_not(file, reference):
    assert unlike(file, reference) == []


def test_a_constant_that_decides_counts_by_itself():
    (found,) = unlike({"s": np.float32(3)}, {"s": np.float32(2)}, {"s"})
    assert found == "s has other values: s is 3, and the reference has 2"
