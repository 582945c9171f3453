"""The steps and ends of ranges of every type of GGUF, against the package that reads its values."""

import numpy as np
import pytest
from helpers.gguftypes import STEPPED, TERNARY, drawn
from helpers.languagemodels import encoded, llama

from xverify.weights import gguf_steps, quantised
from xverify.weights.levels import LEVELS, NON_LINEAR

gguf = pytest.importorskip("gguf")
WEIGHTS = llama()


@pytest.mark.parametrize("kind", STEPPED)
def test_half_a_step_is_the_bound_of_every_value(kind):
    """A value that is moved by a whole step is outside, and every value stands for a whole number of steps."""
    right = WEIGHTS["model.layers.0.mlp.up_proj.weight"][:8]
    data = encoded(right, kind)
    steps = gguf_steps.steps(kind, data)
    values = quantised.values(gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind]), steps, kind)
    exact = quantised.values(right, None)
    assert not quantised.outside(values, exact).any()
    step = values.step
    edge = 2.0 * values.half if kind in LEVELS else 0.0 if kind in TERNARY else step
    inside = (right > values.low + edge) & (right < values.high - edge)
    assert inside.mean() > (0.3 if kind in ("Q2_K", "Q3_K") else 0.7)
    for sign in (-1, 1):
        assert quantised.outside(values.like(values.array + sign * 2.01 * values.half), exact)[inside].all()


@pytest.mark.parametrize("kind", gguf_steps.TYPES)
def test_every_value_is_one_that_its_block_can_have(kind):
    """The ends of a range and the step are read from the same bytes as the values, which the package reads."""
    data, array = drawn(kind)
    values = quantised.values(array, gguf_steps.steps(kind, data), kind)
    sure = values.step > 0
    assert sure.mean() > 0.9
    low, numbers = (each[sure] / values.step[sure] for each in (values.low, values.array))
    if kind in LEVELS:
        levels = LEVELS[kind]
        below = np.abs(low - levels[0]) > 1e-3  # a scale below zero exchanges the ends
        away = np.abs(np.where(below, -numbers, numbers)[:, None] - levels)
        assert away.min(axis=1).max() < 1e-3
        assert set(away.argmin(axis=1).tolist()) == set(range(len(levels)))
        return
    numbers = numbers - low
    assert np.abs(numbers - np.rint(numbers)).max() < 2e-3
    assert (round(numbers.min()), round(numbers.max())) == (
        0,
        gguf_steps.TYPES[kind].greatest - gguf_steps.TYPES[kind].least,
    )


def test_the_table_of_types_without_equal_steps_is_that_of_the_package():
    assert gguf.quants.IQ4_NL.kvalues == NON_LINEAR
    assert {2 * each for each in LEVELS["MXFP4"]} == set(gguf.quants.MXFP4.kvalues)
