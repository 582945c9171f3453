"""Judging the step of an optimizer: right steps pass, wrong steps fail, and known wrong steps are recognised."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import OPTIMIZERS

from xverify.training import optimizer_check
from xverify.verdict import limits
from xverify.workload import optimizers
from xverify.workload.operations import Operations
from xverify.workload.optimizers import optimizer


def state(settings, step, seed=0):
    """A weight, a gradient and optimizer_state such as training has."""
    noise = np.random.default_rng(seed)
    w = noise.normal(0, 0.05, 5000).astype(np.float32)
    g = (10.0 ** noise.uniform(-8, -1, 5000) * noise.choice((-1, 1), 5000)).astype(np.float32)
    optimizer_state = []
    for name in settings.state_names:
        value = (np.square(g) if name in ("square", "sum") else g) * noise.uniform(0.1, 2, 5000)
        none = step == 1 or name in ("row", "column")  # of adafactor, whose vectors have only "square"
        optimizer_state.append(np.zeros_like(w) if none else value.astype(np.float32))
    return w, g, optimizer_state


def float32(settings, w, g, optimizer_state, step):
    new, values = optimizers.update(settings, w, g, optimizer_state, step)
    return new.astype(np.float32), [value.astype(np.float32) for value in values]


def judged(settings, made, step, **more):
    w, g, optimizer_state = state(settings, step)
    after, state_after = float32(made, w, g, optimizer_state, step)
    return optimizer_check.judge(settings, w, g, optimizer_state, step, after, state_after, **more)[0]


@pytest.mark.parametrize("step", [1, 2, 21])
@pytest.mark.parametrize("settings", OPTIMIZERS, ids=lambda o: o.says())
def test_a_right_step_is_equal(settings, step):
    assert 0 < judged(settings, settings, step) <= limits.EQUAL_RHO


@pytest.mark.parametrize("step", [1, 2, 21])
@pytest.mark.parametrize(
    ("settings", "change"),
    [
        (optimizer("adam"), {"beta2": 0.99}),
        (optimizer("adam"), {"beta1": 0.95}),
        (optimizer("adam"), {"eps": 1e-7}),
        (optimizer("adam"), {"lr": 1e-3 * (1 + 2e-4)}),
        (optimizer("adam"), {"variants": ("eps-hat",)}),
        (optimizer("rmsprop"), {"variants": ("eps-inside",)}),
        (optimizer("rmsprop"), {"alpha": 0.9}),
        (optimizer("adagrad"), {"variants": ("eps-inside",)}),
        (optimizer("adagrad"), {"lr": 1e-2 * (1 + 2e-4)}),
        (optimizer("sgd", momentum=0.9, weight_decay=0.01), {"weight_decay": 0.0}),
        (optimizer("sgd", momentum=0.9, weight_decay=0.01), {"variants": ("decoupled",)}),
        (optimizer("adamw", weight_decay=0.1), {"name": "adam"}),
        (optimizer("sgd", momentum=0.9, nesterov=True), {"nesterov": False}),
        (optimizer("sgd", momentum=0.9), {"lr": 0.01 * (1 + 1e-4)}),
        (optimizer("lion", weight_decay=0.1), {"weight_decay": 0.0}),
        (optimizer("lion"), {"beta2": 0.999}),
        (optimizer("lion"), {"lr": 1e-4 * (1 + 2e-4)}),
        (optimizer("adafactor"), {"lr": 1e-2 * (1 + 2e-4)}),
        (optimizer("adafactor"), {"threshold": 0.5}),
        (optimizer("adafactor"), {"variants": ("eps-added",)}),
        (optimizer("adafactor", weight_decay=0.1), {"weight_decay": 0.0}),
        (optimizer("adafactor", weight_decay=0.1), {"variants": ("decayed scale",)}),
    ],
    ids=str,
)
def test_a_wrong_step_is_not_equal(settings, change, step):
    assert judged(settings, replace(settings, **change), step) > limits.EQUAL_RHO


def test_one_alternative_explains_a_wrong_step():
    for settings, change in [
        (optimizer("adam"), {"beta2": 0.99}),
        (optimizer("adam"), {"variants": ("eps-hat",)}),
        (optimizer("sgd", momentum=0.9, weight_decay=0.01), {"weight_decay": 0.0}),
        (optimizer("rmsprop"), {"variants": ("eps-inside",)}),
        (optimizer("lion"), {"beta2": 0.999}),
        (optimizer("adafactor"), {"beta2_decay": -0.5}),
        (optimizer("adafactor"), {"variants": ("eps-added",)}),
    ]:
        w, g, optimizer_state = state(settings, 2)
        after, state_after = float32(replace(settings, **change), w, g, optimizer_state, 2)
        fitting = [
            other
            for _, other in optimizer_check.alternatives(settings)
            if optimizer_check.judge(other, w, g, optimizer_state, 2, after, state_after)[0] <= limits.EQUAL_RHO
        ]
        assert fitting == [replace(settings, **change)]


def test_a_doubled_step_is_equal_for_two_fused_parameters():
    settings = optimizer("adam")
    w, g, optimizer_state = state(settings, 1)
    new, values = float32(settings, w, g, optimizer_state, 1)
    twice = (w + 2 * (new - w)).astype(np.float32)
    assert optimizer_check.judge(settings, w, g, optimizer_state, 1, twice, values, times=2)[0] <= limits.EQUAL_RHO
    assert optimizer_check.judge(settings, w, g, optimizer_state, 1, twice, values)[0] > limits.DRIFT_RHO


def test_a_sign_that_rounding_decides_is_no_fault_of_lion():
    settings = optimizer("lion")
    w, g, (m,) = state(settings, 2)
    m[:50] = -g[:50] * np.float32(0.1 / 0.9)  # what the sign is taken of is zero but for rounding
    after, state_after = float32(settings, w, g, [m], 2)
    flipped = after.copy()
    flipped[:50] = w[:50] - (after[:50] - w[:50])
    assert optimizer_check.judge(settings, w, g, [m], 2, flipped, state_after)[0] <= limits.EQUAL_RHO
    flipped[50:52] = w[50:52] - (after[50:52] - w[50:52])
    assert optimizer_check.judge(settings, w, g, [m], 2, flipped, state_after)[0] > limits.DRIFT_RHO


def test_a_weight_that_is_not_finite_is_never_equal():
    settings = optimizer("sgd")
    w, g, optimizer_state = state(settings, 1)
    new, values = float32(settings, w, g, optimizer_state, 1)
    new[7] = np.nan
    assert optimizer_check.judge(settings, w, g, optimizer_state, 1, new, values)[:2] == (float("inf"), "its change")


class InFloat32(Operations):
    def mean(self, x, axis):
        """A sum in the order of its values, in which float32 rounds most."""
        if axis is None:
            return (np.add.accumulate(x.ravel(), dtype=np.float32)[-1] / np.float32(x.size)).reshape((1,) * x.ndim)
        return np.add.accumulate(x, axis=axis, dtype=np.float32).take([-1], axis) / np.float32(x.shape[axis])


@pytest.mark.parametrize("shape", [(2,), (2, 16), (16, 2), (1, 16), (2, 2), (16, 12)], ids=str)
@pytest.mark.parametrize("settings", OPTIMIZERS, ids=lambda o: o.says())
def test_right_steps_of_small_weights_are_equal(settings, shape):
    """Few values have few roundings: their noise floor must not be left to the chance of a few draws."""
    worst = 0.0
    for seed in range(60):
        noise = np.random.default_rng(seed)
        w = noise.normal(size=shape).astype(np.float32)
        state = [np.zeros(shape, np.float32) for _ in settings.state_names]
        for step in (1, 2, 3):
            g = (noise.normal(size=shape) * 10.0 ** noise.uniform(-4, 0)).astype(np.float32)
            after, made = optimizers.update(settings, w, g, state, step, InFloat32(np))
            after, made = after.astype(np.float32), [np.broadcast_to(each, shape).astype(np.float32) for each in made]
            rho, *_ = optimizer_check.judge(settings, w, g, state, step, after, made, seed=seed)
            worst, w, state = max(worst, rho), after, made
    assert worst <= limits.EQUAL_RHO
