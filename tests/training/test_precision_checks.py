"""The checks of mixed precision: right steps pass, and every mistake turns its own check red."""

from dataclasses import replace

import numpy as np
import pytest

from xverify import Recipe
from xverify.framework.capture import LayerCall
from xverify.messages.training import Scaling, StepTaken, TrainingCaptured
from xverify.training.checks import Local, judge_update
from xverify.training.compared import Coverage
from xverify.training.gradients import judge_gradients
from xverify.training.precision_checks import common_factor, judge_layers, judge_mixed
from xverify.training.step import Distance, Step
from xverify.verdict.findings import StepTruth
from xverify.workload.optimizers import optimizer

FLOAT16, BFLOAT16 = Recipe(precision="float16"), Recipe(precision="bfloat16")
SCALING = Scaling(
    scale=2.0**14,
    interval=2000,
    after_step=2.0**14,
    counted=1,
    overflow=2.0**100,
    after_overflow=2.0**99,
    overflow_counted=0,
    moved=0,
    after_interval=2.0**15,
)
TAKEN = StepTaken(1.0, 1.0, (), {"float32": 2}, SCALING)
NAMES = ("a.weight", "b.weight")


def step(recipe=FLOAT16, noise=1e-3, given=1.0, found=1.0):
    """A step whose gradients are near the exact ones. given, found: what the gradients are multiplied by."""
    random, arrays, exact = np.random.default_rng(0), {}, {}
    before = {name: random.normal(0, 0.3, (40, 30)).astype(np.float32) for name in NAMES}
    for name in NAMES:
        right = random.normal(0, 0.1, (40, 30))
        own = (found * right + random.normal(0, noise * 0.1, right.shape)).astype(np.float32)
        exact[f"gradient/{name}"], exact[f"noise/gradient/{name}"] = right, np.full(right.shape, noise * 0.1)
        arrays[f"gradient/{name}"], arrays[f"accumulated/{name}"] = own, (given * own).astype(np.float32)
        arrays[f"clipped/{name}"] = arrays[f"accumulated/{name}"]
        after = before[name] - np.float32(0.01) * arrays[f"clipped/{name}"]
        arrays[f"weight/{name}"] = after.astype(np.float32)
    sizes, floors = dict.fromkeys(NAMES, 0.1), dict.fromkeys(NAMES, noise * 0.1)
    truth = StepTruth(1.0, 1e-3, floors, sizes)
    return Step(0, 0, arrays, before, {}, exact, truth, {}, recipe)


def checks(made, taken=TAKEN):
    return {check.name: check for check in judge_mixed(made, taken)}


def gradients(made):
    return judge_gradients(made, None, lambda times: {}, Coverage(), Distance())


def test_a_right_step_is_equal_in_every_check():
    found = checks(step())
    assert list(found) == ["master weights", "unscaling", "scaling"]
    assert {check.verdict for check in found.values()} == {"EQUAL"}
    assert gradients(step()).verdict == "EQUAL"
    assert list(checks(step(BFLOAT16), replace(TAKEN, scaling=None))) == ["master weights"]
    assert not checks(step(Recipe()))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"after_step": 2.0**13}, "after a step with finite gradients the scale is 8192"),
        ({"counted": 0}, "0 steps are counted"),
        ({"moved": 2}, "changes 2 weights: it must be skipped"),
        ({"after_overflow": 2.0**100}, "after a step with infinite gradients the scale is"),
        ({"overflow_counted": 1}, "1 steps are counted"),
        ({"after_interval": 2.0**14}, "after 2000 steps with finite gradients the scale is 16384; 32768 is right"),
    ],
)
def test_a_wrong_scaler_is_different_and_named(changes, says):
    check = checks(step(), replace(TAKEN, scaling=replace(SCALING, **changes)))["scaling"]
    assert check.verdict == "DIFFERENT"
    assert says in check.says


def test_weights_in_a_lower_precision_are_named():
    check = checks(step(), replace(TAKEN, master={"float32": 1, "bfloat16": 1}))["master weights"]
    assert check.verdict == "DIFFERENT"
    assert "1 of 2 weights are kept in bfloat16" in check.says


def test_gradients_that_contain_the_scale_are_named():
    check = checks(step(given=2.0**14))["unscaling"]
    assert check.verdict == "DIFFERENT"
    assert "16384 times too large" in check.says
    assert "divide them by the scale of the loss" in check.says
    check = gradients(step(found=2.0**14))
    assert check.verdict == "DIFFERENT"
    assert "every gradient is 16384 times the right one" in check.says


@pytest.mark.parametrize("floor", [np.inf, np.nan, 0.05])
def test_unscaling_is_untested_where_rounding_hides_every_gradient(floor):
    def with_floors(made, *floors):
        return replace(made, truth=replace(made.truth, floors=dict(zip(NAMES, floors))))

    check = checks(with_floors(step(), floor, floor))["unscaling"]
    assert (check.verdict, check.compared, check.known) == ("UNTESTED", 0, 2)
    check = checks(with_floors(step(), floor, 1e-4))["unscaling"]
    assert (check.verdict, check.compared) == ("EQUAL", 1)
    assert checks(with_floors(step(given=2.0**14), floor, 1e-4))["unscaling"].verdict == "DIFFERENT"
    made = step()
    made.taken["accumulated/b.weight"][0] = np.nan
    assert checks(with_floors(made, floor, 1e-4))["unscaling"].verdict == "DIFFERENT"


def test_a_gradient_times_a_factor_is_named():
    made = step(BFLOAT16, noise=5e-2)  # so that its error is 6 noise floors
    made.taken["gradient/b.weight"] *= np.float32(1.3)
    check = gradients(made)
    assert check.verdict == "DIFFERENT"
    assert "b.weight" in check.says
    assert "it is 1.3 times the right one" in check.says


def test_gradients_that_became_zero_are_told_as_underflow():
    made = step(Recipe(precision="float16", loss_scale="off"))
    made.taken["gradient/a.weight"][:] = 0
    check = gradients(made)
    assert check.verdict == "DIFFERENT"
    assert "a.weight: the gradient is zero: float16 has no number between 0 and 6e-8" in check.says
    made = step(FLOAT16)
    made.taken["gradient/a.weight"][:] = 0
    assert "frozen, or without effect" in gradients(made).says


@pytest.mark.parametrize(("dtype", "kept"), [("bfloat16", 16), ("float16", 13)])
def test_weights_that_are_rounded_after_a_step_are_named(dtype, kept):
    made = step(BFLOAT16)
    for name in NAMES:
        bits = made.taken[f"weight/{name}"].view(np.uint32)
        bits &= np.uint32(0xFFFFFFFF << kept & 0xFFFFFFFF)
        made.taken[f"weight/{name}"][np.abs(made.taken[f"weight/{name}"]) < 1e-3] = 0
    check = judge_update(made, optimizer("sgd", lr=0.01, recipe=BFLOAT16), (), (), Coverage())
    assert check.verdict == "DIFFERENT"
    assert f"rounded to {dtype}" in check.says


def test_the_update_is_judged_as_in_float32():
    made = step(BFLOAT16, noise=5e-2)
    assert judge_update(made, optimizer("sgd", lr=0.01, recipe=BFLOAT16), (), (), Coverage()).verdict == "EQUAL"
    check = judge_update(made, optimizer("sgd", lr=0.01 * (1 + 1e-3), recipe=BFLOAT16), (), (), Coverage())
    assert check.verdict == "DIFFERENT"
    assert "learning rate" in check.says


def captured(*dtypes):
    records = tuple(LayerCall(f"layer{i}", 0, (), (), output_dtype=dtype) for i, dtype in enumerate(dtypes))
    return TrainingCaptured(records, channels_last=False, loss=1.0)


def test_the_dtypes_of_layers_are_counted():
    (check,) = judge_layers(BFLOAT16, captured("bfloat16", "", "bfloat16"))
    assert check.verdict == "EQUAL"
    assert check.says == "2 of 3 layers return bfloat16, the others float32"
    (check,) = judge_layers(BFLOAT16, captured("", "float16"))
    assert check.verdict == "DIFFERENT"
    assert "no layer returns bfloat16: the model computes in float16 and float32" in check.says
    assert not list(judge_layers(BFLOAT16, None))
    assert not list(judge_layers(Recipe(), captured("", "")))


def test_a_common_factor_is_no_chance():
    right = np.random.default_rng(0).normal(0, 1, (5, 50))
    assert common_factor([(3 * each, each) for each in right]) == pytest.approx(3)
    assert common_factor([(3 * right[0], right[0]), (5 * right[1], right[1])]) == 0
    assert common_factor([(1.2 * each, each) for each in right]) == 0
    assert common_factor([(-4 * each, each) for each in right]) == 0


def test_more_rounding_explains_nothing_in_a_lower_precision():
    assert Local.of(()) == Local()
    assert Local.of((), mixed=True).more_rounding is None
