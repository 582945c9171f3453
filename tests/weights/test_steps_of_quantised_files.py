"""Quantised weights of files that do not tell their steps: which are wrong, and which have a norm folded into them."""

import numpy as np
import pytest

from xverify.weights.relations import relate
from xverify.weights.steps import beyond_steps
from xverify.weights.stored import Stored, norms_by_name

RANDOM = np.random.default_rng(0)
KERNEL = RANDOM.normal(size=(3, 3, 16, 24)).astype(np.float32)
NORM = {
    "norm/gamma": RANDOM.uniform(0.45, 0.52, 24).astype(np.float32),
    "norm/beta": RANDOM.normal(size=24).astype(np.float32),
    "norm/moving_mean": RANDOM.normal(size=24).astype(np.float32),
    "norm/moving_variance": RANDOM.uniform(0.95, 1.05, 24).astype(np.float32),
}
FOLDED = KERNEL * (NORM["norm/gamma"] / np.sqrt(NORM["norm/moving_variance"] + 1e-3))


def quantised(kernel):
    """A kernel with steps of its own in each channel, as a file of int8 holds it."""
    step = np.abs(kernel).max((0, 1, 2)) / 127
    return (np.round(kernel / step) * step).astype(np.float32)


def sentences(kernel, norm):
    reference = {"conv/kernel": KERNEL, **norm}
    file = Stored({"conv/kernel": kernel}, quantised={"conv/kernel": "int8"})
    stored = Stored(reference, norms_by_name(reference))
    return list(beyond_steps(relate(file, stored), file, stored))


@pytest.mark.parametrize(("kernel", "norm"), [(KERNEL, {}), (FOLDED, NORM)], ids=["as it is", "with a norm folded in"])
def test_a_right_weight_is_not_wrong(kernel, norm):
    assert sentences(quantised(kernel), norm) == []


@pytest.mark.parametrize("norm", [{}, NORM], ids=["no norm", "a norm of another size of values"])
def test_a_factor_of_all_values_is_told(norm):
    assert sentences(quantised(1.3 * KERNEL), norm) == ["conv/kernel: all of its values are x 1.3"]


def test_values_that_are_far_away_are_told():
    wrong = quantised(KERNEL)
    wrong[1, 2, 3, 4] += 3
    (says,) = sentences(wrong, {})
    assert says.startswith(
        "conv/kernel: 1 of its 3456 values are more than 2 steps away from the reference's; the worst, [1, 2, 3, 4]"
    )


BIAS = RANDOM.normal(size=24).astype(np.float32)
NORM_BIAS = NORM["norm/beta"] - NORM["norm/moving_mean"] * NORM["norm/gamma"] / np.sqrt(
    NORM["norm/moving_variance"] + 1e-3
)


def of_bias(bias, **reference):
    """The sentences on a layer with this bias of 32 bits. reference: its bias or norm in float; the kernel is right."""
    kernel = FOLDED if "norm/gamma" in reference else KERNEL
    arrays = {"conv/kernel": quantised(kernel), "conv/bias": np.round(bias * 2e4).astype(np.float32) / np.float32(2e4)}
    file = Stored(arrays, quantised={"conv/kernel": "int8", "conv/bias": "int32"})
    reference = {"conv/kernel": KERNEL, **reference}
    stored = Stored(reference, norms_by_name(reference))
    return list(beyond_steps(relate(file, stored), file, stored))


CASES = {"plain": (BIAS, {"b": BIAS}), "with a norm folded in": (NORM_BIAS, NORM)}


@pytest.mark.parametrize("case", CASES)
def test_a_halved_bias_is_wrong(case):
    bias, reference = CASES[case]
    assert of_bias(bias, **reference) == []
    (says,) = of_bias(bias / 2, **reference)
    assert says.startswith("conv/bias, compared with the reference's ")
    assert says.endswith("all of its values are x 0.5")


@pytest.mark.parametrize("case", CASES)
def test_one_wrong_value_of_a_bias_is_told(case):
    bias, reference = CASES[case]
    wrong = np.array(bias)
    wrong[5] += 1.0
    (says,) = of_bias(wrong, **reference)
    assert "1 of its 24 values are wrong; the worst, [5]" in says


def test_a_bias_of_zeros_of_another_training_run_or_of_a_few_steps_is_not_judged():
    other = RANDOM.normal(size=24)
    few = np.round(BIAS * 3 / np.abs(BIAS).max()) / 3 * np.abs(BIAS).max()
    assert [of_bias(each, b=BIAS) for each in (np.zeros(24), other, few)] == [[], [], []]
