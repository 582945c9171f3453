"""The checks of one whole step, on arrays made here: no framework is needed."""

import math
from dataclasses import replace

import numpy as np
import pytest

from xverify.results.records import Check
from xverify.training.checks import MORE_ROUNDING, Local, judge_loss, judge_statistics, judge_update
from xverify.training.compared import Compared, Coverage
from xverify.training.gradients import judge_gradients
from xverify.training.step import Distance, Step
from xverify.verdict.findings import StepTruth
from xverify.workload.optimizers import VARIANTS, optimizer, update

ROUNDED = (
    Check("forward", 0, "DRIFT", 142.0, "sums lose digits", "rounding"),
    Check("backward", 0, "EQUAL", 2.0),
)
FLOOR = 1e-6


def truth(**facts):
    """The exact step of a reference. Facts that are not given are zero or empty."""
    return StepTruth(**{"loss": 0.0, "loss_floor": 0.0, **facts})


def test_less_accurate_layers_widen_the_limits_and_wrong_layers_remove_them():
    assert Local.of(ROUNDED) == Local(142.0, 142.0)
    assert Local.of((Check("forward", 0, "EQUAL", 1.0), Check("backward", 0, "EQUAL", 2.0))) == Local(
        MORE_ROUNDING, 1.0
    )
    assert Local.of((*ROUNDED, Check("backward", 0, "DIFFERENT", 50.0))).more_rounding is None
    assert Local.of((Check("forward", 0, "UNTESTED"),) * 2).more_rounding is None


def test_a_drifting_loss_is_explained_when_its_layers_round_as_much():
    def judged(floors, rounding):
        step = Step(0, 0, {}, {}, {}, {}, truth(loss=2.0, loss_floor=1e-6), {})
        loss = 2.0 + floors * 1e-6
        check = judge_loss(step, loss, loss, rounding)
        return check.verdict, check.difference

    assert judged(9, 1.0) == ("EQUAL", "")
    assert judged(12, 1.0) == ("DRIFT", "")
    assert judged(12, 11.0) == ("DRIFT", "")
    assert judged(12, 142.0) == ("DRIFT", "rounding")
    assert judged(35, 142.0) == ("DIFFERENT", "")


def test_a_wrong_loss_is_explained_by_the_nearest_mistake():
    alternatives = {"it is the sum": 16.0, "label smoothing is missing": 1.9, "another one": 1.90001}
    right = Step(0, 0, {}, {}, {}, {}, truth(loss=2.0, loss_floor=1e-7, alternatives=alternatives), {})

    def says(loss):
        return judge_loss(right, loss, loss, 1.0).says

    assert says(16.00001).endswith("noise floor away: it is the sum")
    assert says(1.9000001).endswith(": label smoothing is missing")
    assert says(1.5).endswith("noise floor away")
    assert says(2.0) == ""


def test_a_loss_that_is_not_finite_says_where_it_begins():
    right = Step(0, 2, {}, {}, {}, {}, truth(loss=2.0, loss_floor=1e-7), {})
    check = judge_loss(right, 2.0, math.nan, 1.0, lambda: ": it begins in fc1")
    assert check.verdict == "INVALID"
    assert check.says == "the loss of the timed step is nan: it begins in fc1; the reference's is 2"


def step(taken=(), **more):
    """A right step of parameters a and b, with exact gradients 1 and 2. taken: arrays that replace those of the right step."""
    exact = {"gradient/a": np.full(8, 1.0), "gradient/b": np.full((2, 3), 2.0)}
    before = {"a": np.full(8, 0.5, np.float32), "b": np.full((2, 3), 0.5, np.float32)}
    found = {key: array.astype(np.float32) for key, array in exact.items()}
    found |= {f"weight/{name}": before[name] - np.float32(0.1) * found[f"gradient/{name}"] for name in before}
    found |= dict(taken)
    sizes = more.pop("sizes", {"a": 1.0, "b": 2.0})
    exact = {f"gradient/{name}": np.full(before[name].shape, size) for name, size in sizes.items()}
    exact |= noise_of("noise/gradient/", {"a": FLOOR, "b": FLOOR})
    facts = truth(**{"floors": {"a": FLOOR, "b": FLOOR}, "sizes": sizes, **more})
    return Step(0, 0, {key: array for key, array in found.items() if array is not None}, before, {}, exact, facts, {})


def noise_of(prefix, floors):
    """The noise of each value of a and b."""
    return {f"{prefix}{name}": np.full((8,) if name == "a" else (2, 3), floor) for name, floor in floors.items()}


def judged(taken=(), more_rounding=MORE_ROUNDING, floors=None, **more):
    """(verdict, text, untested, compared) of these gradients. floors: those with more rounding; None: not needed."""
    coverage = Coverage()

    def widened(times):
        assert times == more_rounding
        return noise_of("", floors)

    check = judge_gradients(step(taken, **more), more_rounding, widened, coverage, Distance())
    assert check.known == 2 or check.verdict == "INVALID"
    return check.verdict, check.says, coverage.untested, check.compared


def off(name, shape, by):
    return {f"gradient/{name}": np.full(shape, (1.0 if name == "a" else 2.0) + by, np.float32)}


def test_a_weight_that_no_step_changes_is_equal():
    """Such as a frozen one: neither the exact change nor its noise is anything but zero."""
    zeros = np.zeros((4, 3))
    same = Compared.of(zeros, zeros, zeros)
    assert same.ratio == same.badness(10.0) == 0.0
    other = Compared.of(zeros + 1e-6, zeros, zeros)
    assert other.ratio == other.badness(10.0) == np.inf


def test_right_gradients_are_equal_without_a_second_noise_floor():
    assert judged() == ("EQUAL", "", [], 2)
    assert judged(off("a", 8, 20 * FLOOR)) == ("EQUAL", "", [], 2), (
        "the errors of right layers may add up to more than their noise"
    )


def test_with_a_wrong_layer_gradients_are_judged_by_the_noise_alone():
    assert judged(off("a", 8, 6 * FLOOR), more_rounding=None)[0] == "DRIFT"
    verdict, says, _, compared = judged(off("b", (2, 3), 40 * FLOOR), more_rounding=None)
    assert (verdict, compared) == ("DIFFERENT", 2)
    assert says.startswith("b: ")
    assert says.endswith("x the noise of all layers")


def test_a_wrong_gradient_of_a_sum_of_parameters_is_named_with_its_factor():
    """A framework may store the sum of two biases as one parameter. The report names the first of the two."""
    right = step(off("a", 8, 1.0))
    taken = {"gradient/a+c": right.taken["gradient/a"], "gradient/b": right.taken["gradient/b"]}
    found = replace(right, taken=taken, fused_parameters={"a+c": ("a", "c")})
    found.truth.floors["c"], found.truth.sizes["c"] = FLOOR, 1.0
    found.exact.update({f"{what}/c": found.exact[f"{what}/a"] for what in ("gradient", "noise/gradient")})
    check = judge_gradients(found, None, lambda times: {}, Coverage(), Distance())
    assert (check.verdict, check.known) == ("DIFFERENT", 2)
    assert check.says.startswith("a: ")
    assert check.says.endswith("it is 2 times the right one")


def test_gradients_across_a_kink_are_judged_with_more_rounding():
    far = off("a", 8, 100 * FLOOR)
    within = judged(far, floors={"a": 50 * FLOOR, "b": FLOOR})
    assert (within[0], within[2:]) == ("EQUAL", ([], 2))
    blurred = judged(off("a", 8, 0.05), floors={"a": 0.04, "b": FLOOR})
    assert (blurred[0], blurred[2:]) == ("EQUAL", (["a"], 1)), "a noise floor of 4% of a gradient leaves it untested"
    assert judged(far, floors={"a": 2 * FLOOR, "b": FLOOR})[0] == "DIFFERENT"


@pytest.mark.parametrize(
    ("gradient", "verdict", "says"),
    [
        (
            None,
            "DIFFERENT",
            "the reference trains a, and the port does not: frozen, or not a parameter in this framework",
        ),
        (np.zeros(8, np.float32), "DIFFERENT", "a: the gradient is zero: frozen, or without effect on the loss"),
        (np.ones(9, np.float32), "INVALID", "a: its gradient has shape (9,), not (8,)"),
        (np.full(8, np.nan, np.float32), "INVALID", "a: its gradient has NaN or infinity"),
    ],
)
def test_a_broken_gradient_is_reported_with_its_reason(gradient, verdict, says):
    assert judged({"gradient/a": gradient})[:2] == (verdict, says)


def test_a_gradient_that_consists_of_rounding_is_untested():
    null = {"sizes": {"a": 50 * FLOOR, "b": 2.0}}
    assert judged({"gradient/a": np.full(8, 70 * FLOOR, np.float32)}, **null) == ("EQUAL", "", ["a"], 1)
    assert judged({"gradient/a": np.zeros(8, np.float32)}, more_rounding=None, **null)[0] == "DIFFERENT"
    assert judged({"gradient/a": np.full(8, 5.0, np.float32)}, more_rounding=None, **null)[0] == "DIFFERENT", (
        "far beyond what rounding explains"
    )
    still = {f"gradient/{name}": np.zeros(shape, np.float32) for name, shape in (("a", 8), ("b", (2, 3)))}
    none = judged(still, sizes={"a": 0.0, "b": 0.0})
    assert none == ("UNTESTED", "every gradient consists of rounding alone", ["a", "b"], 0)


@pytest.mark.parametrize("floor", [math.inf, math.nan])
def test_nothing_is_judged_by_a_noise_floor_that_is_not_finite(floor):
    """Such a floor would be above every fault."""
    exact = noise_of("noise/gradient/", {"a": floor, "b": floor})
    made = step(
        {"gradient/a": np.full(8, 77.0, np.float32)}, floors={"a": floor, "b": floor}, loss=1.0, loss_floor=floor
    )
    made.exact.update(exact)
    coverage = Coverage()
    found = judge_gradients(made, None, lambda times: {}, coverage, Distance())
    assert (found.verdict, found.compared, coverage.untested) == ("UNTESTED", 0, ["a", "b"])
    assert judge_loss(made, 77.0, 77.0, 1.0).verdict == "UNTESTED"
    moved = replace(made, taken={**made.taken, "weight/a": np.full(8, 9.0, np.float32)})
    assert judge_update(moved, optimizer("sgd", lr=0.1), (), (), coverage).verdict == "UNTESTED"
    assert (coverage.share("gradients"), coverage.share("update")) == (0.0, 0.0)


def test_one_wild_value_does_not_hide_the_others():
    """The floor of the whole gradient is that of its largest value."""
    exact = np.full(40, 1.0)
    exact[0], noise = 1e9, np.abs(exact) * 1e-7
    noise[0] = 1e5
    found = exact.copy()
    found[20:] *= 1.01
    facts = truth(floors={"a": math.sqrt(np.mean(noise**2))}, sizes={"a": 1e8})
    arrays = {"gradient/a": exact, "noise/gradient/a": noise}
    made = Step(0, 0, {"gradient/a": found}, {}, {}, arrays, facts, {})
    check = judge_gradients(made, None, lambda times: {}, Coverage(), Distance())
    assert check.verdict == "DIFFERENT"
    assert "a: its error is in its worst group of values " in check.says
    right = judge_gradients(replace(made, taken={"gradient/a": exact}), None, lambda times: {}, Coverage(), Distance())
    assert right.verdict == "EQUAL"
    assert 1e-7 < right.detection_limits["a"] < 1e-5


def test_a_detection_limit_is_the_fault_that_just_shows():
    limit = judge_gradients(step(), None, lambda times: {}, Coverage(), Distance()).detection_limits["b"]
    for factor, equal in ((0.15, True), (1.1, False)):
        made = step({"gradient/b": np.full((2, 3), 2.0 * (1 + factor * limit))})
        found = judge_gradients(made, None, lambda times: {}, Coverage(), Distance())
        assert (found.verdict == "EQUAL") == equal, factor


def test_an_update_is_judged_by_its_worst_parameter():
    settings = optimizer("sgd", lr=0.1)
    assert judge_update(step(), settings, (), (), Coverage()).verdict == "EQUAL"
    half = judge_update(step({"weight/b": np.full((2, 3), 0.4, np.float32)}), settings, (), (), Coverage())
    assert half.verdict == "DIFFERENT"
    assert half.says.startswith("b: the error of its change is ")
    assert half.says.endswith("behaves as learning rate 0.05; it should be 0.1")
    still = judge_update(step({"weight/a": np.full(8, 0.5, np.float32)}), settings, (), (), Coverage())
    assert still.says.endswith("a did not change: frozen")
    assert (
        judge_update(step({"gradient/a": None, "gradient/b": None}), settings, (), (), Coverage()).says
        == "no parameter has a gradient, so nothing is trained"
    )


@pytest.mark.parametrize(("ulps", "verdict"), [(4, "EQUAL"), (10, "DRIFT"), (40, "DIFFERENT")])
def test_an_update_a_little_beyond_its_floor_is_drift(ulps, verdict):
    weight = step().taken["weight/b"]
    for _ in range(ulps):
        weight = np.nextafter(weight, np.float32(1))
    check = judge_update(step({"weight/b": weight}), optimizer("sgd", lr=0.1), (), (), Coverage())
    assert (check.verdict, check.difference) == (verdict, "")


def test_the_frameworks_own_formula_is_drift_and_named_and_another_one_is_different():
    asked = optimizer("adam")
    gradients = 10.0 ** np.linspace(-9, -5, 800).astype(np.float32)
    before = np.full(800, 0.001, np.float32)
    after, state = update(replace(asked, variants=("eps-hat",)), before, gradients, [np.zeros_like(before)] * 2, 1)
    taken = {"gradient/a": gradients, "weight/a": after.astype(np.float32)}
    taken |= {f"state/a/{index}": array.astype(np.float32) for index, array in enumerate(state)}
    exact = {"noise/gradient/a": np.zeros(800)}
    made = Step(0, 0, taken, {"a": before}, {}, exact, truth(floors={"a": 0.0}, sizes={"a": 1.0}), {})
    named = judge_update(made, asked, ("eps-hat",), (), Coverage())
    assert (named.verdict, named.difference, named.says) == ("DRIFT", "eps-hat", f"eps-hat: {VARIANTS['eps-hat']}")
    unnamed = judge_update(made, asked, (), (), Coverage())
    assert (unnamed.verdict, unnamed.difference) == ("DIFFERENT", "")


def test_running_statistics_that_are_not_finite_are_invalid():
    name = "bn.running_mean"
    bn = Step(
        0, 0,
        {f"weight/{name}": np.array([math.nan], np.float32)},
        {name: np.zeros(1, np.float32), "bn.running_var": np.ones(1, np.float32)}, {},
        {f"statistic/{name}": np.zeros(1), "statistic/bn.running_var": np.ones(1)},
        truth(statistics={name: 1e-6}, momentum={"bn": 0.1}, terms={"bn": 8}), {},
    )  # fmt: skip
    check = judge_statistics(bn, 1.0)
    assert (check.verdict, check.says) == ("INVALID", "bn.running_mean has NaN or infinity")
