"""The check of a state, with arrays in memory: what is matched with what, and what is judged."""

import numpy as np
import pytest

from xverify.training.own_matching import Side, match
from xverify.training.own_state import States, compare_state
from xverify.verdict.limits import UNIT
from xverify.verdict.own_step import StateEntry
from xverify.weights.canonical import Changed

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(6, 8))
AFTER = WEIGHT + 0.01 * RNG.normal(size=(6, 8))


def entry(place, kind="", weight="", says=""):
    key = ".".join(filter(None, (place, kind, weight)))
    return StateEntry(f"state.{key}", key, place, kind, weight, says)


def arrays(values):
    return Changed(
        {each.path: np.asarray(array) for each, array in values.items()}, {each.path: each.path for each in values}
    )


def side(name, values, start=None):
    return Side(name, tuple(values), arrays(values), arrays(values if start is None else start))


def compared(own, right, own_before=None, right_before=None, fused=None, noise=UNIT, multiples=None, own_weight=None):
    """The comparison of two states: entry -> array."""
    own_before, right_before = (
        own if own_before is None else own_before,
        right if right_before is None else right_before,
    )
    return compare_state(
        States(
            own=side("the port", own, own_before),
            right=side("the reference", right, right_before),
            own_before=arrays(own_before),
            right_before=arrays(right_before),
            noise=arrays({each: noise * np.abs(np.asarray(array, np.float64)) for each, array in right.items()}),
            weights={"after/w": AFTER, "change/w": AFTER - WEIGHT},
            own_weight={"w": AFTER if own_weight is None else own_weight}.get,
            fused=fused or {},
            multiples={} if multiples is None else multiples,
        )
    )


EMA, TEACHER = entry("ema", weight="w"), entry("teacher", weight="w")


def average(decay, weight=AFTER):
    return decay * WEIGHT + (1 - decay) * weight


def test_an_average_under_another_name_is_matched_by_its_start():
    found = compared({TEACHER: average(0.9)}, {EMA: average(0.9)}, {TEACHER: WEIGHT}, {EMA: WEIGHT})
    assert (list(found.judged), found.failing, found.left_out) == (["state.ema.w"], [], {})
    assert found.matched == {"state.ema.w": "state.teacher.w"}
    assert found.check(0, {}).verdict == "EQUAL"


def test_two_values_with_one_start_are_not_guessed():
    own = {TEACHER: average(0.9), entry("frozen", weight="w"): WEIGHT}
    found = compared(own, {EMA: average(0.9)}, dict.fromkeys(own, WEIGHT), {EMA: WEIGHT})
    assert not found.judged
    assert "several values of the state of the port begin with its values" in found.left_out["state.ema.w"]
    check = found.check(0, {})
    assert check.verdict == "UNTESTED"
    assert "nothing of it is compared" in check.says


def test_a_decay_is_that_of_the_weights_of_the_port_itself():
    """Rounding may change a step of Adam by more than the formula of an average is off."""
    own = AFTER + 1e-4 * np.random.default_rng(1).normal(size=AFTER.shape)
    found = compared({EMA: average(0.5, own)}, {EMA: average(0.9)}, {EMA: WEIGHT}, {EMA: WEIGHT}, own_weight=own)
    assert "it behaves as decay 0.5; the reference's is 0.9" in found.check(0, {}).says


def test_another_shape_is_said():
    found = compared({EMA: AFTER.T}, {EMA: AFTER})
    assert found.left_out == {"state.ema.w": "its shape is (8, 6) in the port and (6, 8) in the reference"}


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (average(0.1), "it behaves as decay 0.1; the reference's is 0.9"),
        (AFTER, "it behaves as decay 0; the reference's is 0.9"),
        (WEIGHT, "is not changed by the step: it is never updated, or it is updated before the weights are"),
        (np.full_like(WEIGHT, np.nan), "has NaN or infinity"),
    ],
    ids=["decay", "the weight itself", "not updated", "not finite"],
)
def test_a_wrong_average_is_explained(after, says):
    check = compared({EMA: after}, {EMA: average(0.9)}, {EMA: WEIGHT}, {EMA: WEIGHT}).check(0, {})
    assert check.verdict == ("INVALID" if "NaN" in says else "DIFFERENT")
    assert says in check.says


def test_an_average_of_the_weights_before_the_step_is_explained():
    start = WEIGHT + 0.1
    right, wrong = 0.9 * start + 0.1 * AFTER, 0.9 * start + 0.1 * WEIGHT
    check = compared({EMA: wrong}, {EMA: right}, {EMA: start}, {EMA: start}).check(0, {})
    assert "it is updated before the weights are" in check.says


MOMENT, KEPT = entry("sgd", "momentum_buffer", "w"), entry("opt.0", "momentum_buffer", "w")
OTHER, OTHER_KEPT = entry("sgd", "momentum_buffer", "b"), entry("opt.0", "momentum_buffer", "b")


def test_a_momentum_that_holds_the_learning_rate_is_compared_up_to_one_factor():
    right, multiples = {MOMENT: AFTER, OTHER: WEIGHT}, {}
    assert not compared({KEPT: -0.1 * AFTER, OTHER_KEPT: -0.1 * WEIGHT}, right, multiples=multiples).failing
    assert multiples[("opt.0", "momentum_buffer")] == pytest.approx(-0.1)
    assert len(compared({KEPT: -0.1 * AFTER, OTHER_KEPT: -0.2 * WEIGHT}, right).failing) == 2
    later = compared({KEPT: -0.05 * AFTER, OTHER_KEPT: -0.05 * WEIGHT}, right, multiples=multiples)
    assert not later.failing
    assert "the learning rate is a factor of it" in later.left_out["state.sgd.momentum_buffer.w"]


def test_another_moment_has_no_factor():
    moment = entry("adam", "exp_avg", "w")
    assert compared({moment: 2 * AFTER}, {moment: AFTER}, {}, {}).failing


def test_a_moment_of_a_sum_is_that_of_each_part_and_an_average_is_the_sum():
    fused = {"bias": ("bias_ih", "bias_hh")}
    parts = [entry(place, kind, name) for place, kind in (("ema", ""), ("adam", "exp_avg")) for name in fused["bias"]]
    right = dict(zip(parts, (WEIGHT, AFTER, WEIGHT, WEIGHT)))
    own = {entry("ema", weight="bias"): WEIGHT + AFTER, entry("adam", "exp_avg", "bias"): WEIGHT}
    found = compared(own, right, fused=fused)
    assert list(found.judged) == ["state.ema.bias_ih", "state.adam.exp_avg.bias_ih"]
    assert not found.failing
    assert not found.left_out


def test_whole_numbers_are_exact_and_numbers_that_stand_still_are_settings():
    count, decay = entry("count"), entry("decay")
    right, before = {count: np.array(3), decay: np.array(0.99)}, {count: np.array(2), decay: np.array(0.99)}
    assert not compared({count: np.array(3), decay: np.array(0.99)}, right, before, before, noise=0).failing
    found = compared({count: np.array(2), decay: np.array(0.01)}, right, {**before, decay: np.array(0.01)}, before)
    assert found.check(0, {}).says == "state.count is 2; the reference's is 3"
    assert found.left_out == {"state.decay": "no step changes it; it is 0.01, and 0.99 in the reference"}


def test_a_known_difference_of_a_weight_is_one_of_its_average():
    found = compared({EMA: average(0.1)}, {EMA: average(0.9)}, {EMA: WEIGHT}, {EMA: WEIGHT})
    check = found.check(0, {"w": "one bias"})
    assert (check.verdict, check.difference) == ("DRIFT", "one bias")
    assert found.check(0, {"other": "one bias"}).verdict == "DIFFERENT"


def test_what_the_reference_cannot_tell_is_left_out():
    random = entry("ema", weight="w", says="it is random: two runs of the reference give it other values")
    assert compared({EMA: AFTER}, {random: AFTER}).left_out["state.ema.w"].startswith("it is random")
    assert (
        compared({EMA: AFTER}, {EMA: AFTER}, noise=np.inf)
        .left_out["state.ema.w"]
        .startswith("the state of the reference")
    )


def test_nothing_is_matched_twice():
    right = {entry("d", "step"): np.array(1), entry("g", "step"): np.array(1)}
    own = {entry("g.0", "step"): np.array(1), entry("d.0", "step"): np.array(1)}
    pairs = match(side("the port", own), side("the reference", right), {}).pairs
    assert [(pair.own.place, pair.right[0].place) for pair in pairs] == [("d.0", "d"), ("g.0", "g")]
