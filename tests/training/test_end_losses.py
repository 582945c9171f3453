"""End losses over seeds: the statistics, and trainings on the command line with a fault that only shows over many steps."""

import math

import numpy as np
import pytest

from xverify.training.end_losses import MARGIN, batch_order, judge_end_losses

SEEDS, STEPS, LAST, BATCHES = 6, 50, 10, 4


def trainings(seed=0, noise=0.0, factor=1.0):
    """Losses of several trainings from 2 down to about 0.2, whose ends differ from seed to seed by a third."""
    random = np.random.default_rng(seed)
    ends = np.random.default_rng(1).uniform(0.15, 0.25, SEEDS)
    return [
        tuple((2.0 * 0.9**step + end * factor) * (1 + noise * random.standard_normal()) for step in range(STEPS))
        for end in ends
    ]


def judged(found, reference=None):
    reference = trainings() if reference is None else reference
    return judge_end_losses(range(len(reference)), found, reference, LAST, BATCHES)


def test_the_same_losses_are_the_same_within_nothing():
    found = judged(trainings())
    assert (found.verdict, found.difference, found.low, found.high) == ("SAME", 0, 0, 0)
    assert found.says.startswith("end losses SAME within ±0 (")
    assert "6 seeds, mean of the last 10 of 50 steps" in found.says


def test_a_difference_below_the_margin_is_the_same():
    found = judged(trainings(seed=5, noise=1e-4))
    assert found.verdict == "SAME"
    assert 0 < max(-found.low, found.high) <= found.margin
    assert found.margin == pytest.approx(MARGIN * np.mean(found.reference))


@pytest.mark.parametrize(("factor", "verdict"), [(1.1, "HIGHER"), (0.9, "LOWER")])
def test_a_difference_is_seen_although_seeds_differ_more(factor, verdict):
    found = judged(trainings(seed=5, noise=0.01, factor=factor))
    assert found.verdict == verdict
    assert found.says.startswith(f"end losses {verdict} by 0.0")
    assert np.std(found.reference) > abs(found.difference)


def test_noise_that_hides_a_difference_leaves_it_undecided():
    found = judged(trainings(seed=5, noise=0.5))
    assert found.verdict == "UNDECIDED"
    assert found.low < 0 < found.high
    assert "more seeds narrow the interval" in found.says


def test_equal_trainings_with_noise_are_rarely_called_different():
    verdicts = [judged(trainings(seed, 0.1), trainings(seed + 1000, 0.1)).verdict for seed in range(200)]
    assert sum(verdict in ("HIGHER", "LOWER") for verdict in verdicts) <= 20, "about one in twenty is expected"


def test_the_margin_is_small_where_training_has_changed_little():
    flat = [tuple(2.0 - 1e-4 * step for step in range(STEPS)) for _ in range(SEEDS)]
    slower = [tuple(2.0 - 0.8e-4 * step for step in range(STEPS)) for _ in range(SEEDS)]
    assert judged(slower, flat).verdict == "HIGHER"


def test_a_training_that_diverges_is_named():
    found = trainings()
    found[2] = (*found[2][:7], math.nan)
    assert judged(found).verdict == "DIVERGED"
    assert "with seed 2 the loss is nan at step 7; the reference's stays finite" in judged(found).says


def test_one_seed_is_undecided():
    assert judged(trainings()[:1], trainings()[:1]).verdict == "UNDECIDED"


def test_every_pass_has_every_batch_in_an_order_of_the_seed():
    order = batch_order(10, 4, seed=3)
    assert [sorted(order[start : start + 4]) for start in (0, 4)] == [[0, 1, 2, 3]] * 2
    assert len(order) == 10
    assert order == batch_order(10, 4, seed=3) != batch_order(10, 4, seed=4)


# -- on the command line ----------------------------------------------------------------------------------------------

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 12))},
    outputs={"y": TensorSpec(("N", 3))},
    targets={"tags": TensorSpec(("N",), "int64", low=0, high=3)},
    batch=16,
)
"""
TORCH = """
from torch import nn
def build():
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3))
def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs["y"], targets["tags"])
"""
KERAS = """
import keras
from keras import ops
def build():
    x = keras.Input((12,))
    h = keras.layers.Dense(16, activation="tanh", name="0")(x)
    return keras.Model(x, keras.layers.Dense(3, name="2")(h))
def loss(outputs, targets):
    values = keras.losses.sparse_categorical_crossentropy(targets["tags"], outputs["y"], from_logits=True)
    value = ops.mean(values)
    return value
"""
# Once the loss is small, the gradient is 20% larger, as with a higher learning rate. The value of the loss is right.
LATE = """
    late = ops.cast(ops.stop_gradient(value) < 1.0, "float32")
    return value + 0.2 * late * (value - ops.stop_gradient(value))
"""
TRAIN = ["--task", "train", "--warmup", 1, "--rerun", 2, "--lr", 0.1, "--subjects", "torch:eager,tensorflow:graph"]


def folder(path, late):
    path.mkdir()
    (path / "spec.py").write_text(SPEC)
    (path / "torch.py").write_text(TORCH)
    (path / "tensorflow.py").write_text(KERAS.replace("    return value\n", LATE) if late else KERAS)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["equal", "late"])
def test_a_fault_that_shows_only_over_many_steps(xverify, tmp_path, late):
    pytest.importorskip("tensorflow")
    done = xverify("run", folder(tmp_path / "net", late), *TRAIN, "--steps", 120, "--seeds", 4)
    assert done.code == 0, done.out + done.err
    training = done.result["rows"][1]["training"]
    assert {check["verdict"] for check in training["checks"]} == {"EQUAL"}, "no check of a single step sees the fault"
    curve, ends = training["curve"], training["end_losses"]
    assert len(curve["losses"]) == len(curve["reference"]) == ends["steps"] == 120
    assert (len(ends["seeds"]), ends["last"]) == (4, 12)
    assert done.result["settings"]["steps"] == 120
    assert done.result["rows"][0]["training"]["end_losses"]["verdict"] == "SAME"
    assert "this proves no equality" in done.out
    if late:
        assert (curve["verdict"], ends["verdict"], done.result["rows"][1]["error"]["verdict"]) == (
            "DRIFT",
            "LOWER",
            "DRIFT",
        )
        assert "tensorflow:graph: end losses LOWER by " in done.out
    else:
        assert (curve["verdict"], ends["verdict"], done.result["rows"][1]["error"]["verdict"]) == (
            "EQUAL",
            "SAME",
            "EQUAL",
        )
        assert "end losses SAME within ±" in done.out


@pytest.mark.slow
def test_a_chaotic_training_is_compared_until_rounding_hides_what_training_changes(xverify, tmp_path):
    pytest.importorskip("keras")
    port, wide = (
        folder(tmp_path / "net", late=False),
        "nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3)",
    )
    (port / "torch.py").write_text(TORCH.replace("nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3)", wide))
    layers = """h = keras.layers.Dense(64, activation="tanh", name="0")(x)
    h = keras.layers.Dense(64, activation="tanh", name="2")(h)
    return keras.Model(x, keras.layers.Dense(3, name="4")(h))
def loss"""
    start, end = KERAS.index("h = keras"), KERAS.index("def loss")
    (port / "tensorflow.py").write_text(KERAS[:start] + layers + KERAS[end + len("def loss") :])
    train = ["--task", "train", "--warmup", 1, "--rerun", 2, "--subjects", "keras-torch", "--momentum", 0.9]
    done = xverify("run", port, *train, "--lr", 0.6, "--steps", 150)
    assert done.code == 0, done.out + done.err
    curve = done.result["rows"][0]["training"]["curve"]
    assert curve["verdict"] == "EQUAL"
    assert 20 < curve["judged"] < 150 == len(curve["losses"])
    assert f"curve judged for {curve['judged']} of 150 steps: at step {curve['judged']} rounding alone" in done.out
    assert "later steps are not compared" in done.out
