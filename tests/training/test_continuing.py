"""What is said of a state that differs, and of steps that do not go on as they should. No framework is started."""

from dataclasses import replace

import numpy as np
import pytest

from xverify.results.verdicts import Verdict
from xverify.training import continuing
from xverify.training.continuing import Apart, Made, State, apart, differences, judge_step, verdict
from xverify.workload.adafactor import last_two
from xverify.workload.keys import state_key
from xverify.workload.optimizers import optimizer, update

NAMES = ("a", "b")
ADAM = optimizer("adam")
NEAR = Apart(1.0, 1e-7)


def begun(o=ADAM, shape=(5, 5)):
    """A state after 20 steps of this optimizer."""
    noise, weights, state = np.random.default_rng(0), {}, {}
    for name in NAMES:
        w, kept = noise.normal(size=shape), [np.zeros(shape) for _ in o.state_names]
        for step in range(20):
            w, kept = update(o, w, noise.normal(size=shape), kept, step + 1)
        weights[name] = w.astype(np.float32)
        state |= {state_key(name, index): np.asarray(each, np.float32) for index, each in enumerate(kept)}
    return State(weights, state, 20)


def stepped(o, state, steps=None):
    """A step from this state in float32, as a framework writes it."""
    noise, arrays = np.random.default_rng(1), {}
    for name in NAMES:
        g = noise.normal(size=state.weights[name].shape).astype(np.float32)
        kept = continuing.states_of(state.state, name, len(o.state_names))
        w, kept = update(o, state.weights[name], g, kept, (state.steps if steps is None else steps) + 1)
        arrays |= {f"gradient/{name}": g, f"weight/{name}": np.float32(w)}
        arrays |= {f"state/{state_key(name, index)}": np.float32(each) for index, each in enumerate(kept)}
    return Made(arrays)


def changed(state, **arrays):
    return replace(state, state={**state.state, **{key.replace("_", "/"): each for key, each in arrays.items()}})


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (lambda s: changed(s, a_0=s.state["b/0"]), ["mean of a differs: it is that of b"]),
        (lambda s: changed(s, a_0=s.state["a/0"].T), ["mean of a differs: it is transposed"]),
        (lambda s: changed(s, a_1=np.sqrt(s.state["a/1"])), ["square of a differs: it is the square root"]),
        (lambda s: changed(s, a_1=s.state["a/1"] ** 2), ["square of a differs: it is the square"]),
        (lambda s: replace(s, steps=21), ["the number of steps is 21, and should be 20"]),
        (
            lambda s: changed(s, a_0=1.5 * s.state["a/0"]),
            ["mean of a differs: the rms of the difference is 0.5 of its size"],
        ),
        (lambda s: replace(s, weights={**s.weights, "b": s.weights["a"]}), ["the weight b differs: it is that of a"]),
        (lambda s: s, []),
    ],
)
def test_a_wrong_state_is_told(plant, says):
    state = begun()
    assert differences(state, plant(state), NAMES, ADAM) == says


@pytest.mark.parametrize("o", [ADAM, optimizer("sgd", momentum=0.9), optimizer("rmsprop"), optimizer("adafactor")])
def test_a_right_step_is_equal_and_one_from_a_wrong_state_is_not(o):
    state = begun(o)
    right = judge_step(o, o, NAMES, state, stepped(o, state))
    assert right.own <= 3
    assert verdict([right], NEAR, True) == Verdict.EQUAL
    wrong = changed(state, a_0=state.state["b/0"], b_0=state.state["a/0"])
    judged = judge_step(o, o, NAMES, state, stepped(o, wrong))
    assert judged.own > 100
    assert verdict([judged], NEAR, True) == Verdict.DIFFERENT


def test_a_counter_that_is_off_by_one_shows_in_a_step():
    state = begun()
    judged = judge_step(ADAM, ADAM, NAMES, state, stepped(ADAM, state, steps=21))
    assert judged.own > 100
    assert judged.what.startswith("the change of ")


def test_the_formula_of_the_framework_is_drift():
    own = replace(ADAM, variants=("eps-hat",), eps=1e-2)
    state = begun(own)
    judged = judge_step(ADAM, own, NAMES, state, stepped(own, state))
    assert judged.own <= 3 < judged.source
    assert verdict([judged], Apart(100.0, 1e-3), False) == Verdict.DRIFT
    assert verdict([judged], Apart(1e6, 0.2), False) == Verdict.DIFFERENT


def test_weights_that_part_are_found_beside_the_noise():
    noise = np.random.default_rng(2)
    begin = {"a": np.float32(noise.normal(size=50))}
    end = {"a": begin["a"] + np.float32(0.01)}
    replicas = [(begin, end)] + [
        (begin, {"a": end["a"] + np.float32(1e-6 * noise.normal(size=50))}) for _ in range(continuing.REPLICAS)
    ]
    near, far = (np.float32(each * noise.normal(size=50)) for each in (1e-6, 1e-4))
    assert apart(["a"], end, {"a": end["a"] + near}, replicas).ratio < continuing.LIMIT
    assert apart(["a"], end, {"a": end["a"] + far}, replicas)[::2] == (pytest.approx(100, rel=0.4), "a")


@pytest.mark.parametrize(("factor", "says"), [(1 + 1e-4, 0), (1.05, 1)])
def test_the_gradient_of_a_wrong_port_is_told(factor, says):
    g = np.random.default_rng(4).normal(size=50).astype(np.float32)
    small = np.float32(1e-9) * g  # rounding alone, as of a bias before a batch norm
    one = Made({"gradient/a": g, "gradient/b": small})
    other = Made({"gradient/a": np.float32(factor) * g, "gradient/b": -small})
    assert len(continuing.other_gradients(one, other, NAMES)) == says


def test_replicas_that_part_from_the_steps_of_the_file_are_no_noise():
    """Where a state that was read and set again does not go on as the file itself, the noise must not grow."""
    begin = {"a": np.ones(50, np.float32)}
    end = {"a": begin["a"] + np.float32(0.01)}
    replicas = [(begin, {"a": end["a"] + np.float32(0.005)})] * (continuing.REPLICAS + 1)
    assert apart(["a"], end, {"a": end["a"] + np.float32(0.005)}, replicas).ratio > 100


def test_means_of_adafactor_over_other_axes_are_exact_where_the_whole_is_kept():
    o = optimizer("adafactor")
    state = begun(o, (4, 6))
    square = np.random.default_rng(3).uniform(size=(4, 6)).astype(np.float32)
    zero = np.zeros_like(square)
    whole = changed(state, a_0=zero, a_1=zero, a_2=square)
    made = Made({"axes/a": np.array((), np.int32)})
    found = continuing.from_axes(whole, made).state
    assert last_two(2) == (0, 1)
    assert np.allclose(found["a/0"], square.mean(-1, keepdims=True))
    assert found["a/0"].shape == (4, 6)
    assert np.allclose(found["a/1"], square.mean(-2, keepdims=True))
    assert not found["a/2"].any()
