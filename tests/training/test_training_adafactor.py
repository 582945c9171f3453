"""Adafactor on the command line, with weights of two and of four axes: each framework's own, and torch's formula."""

from dataclasses import replace

import numpy as np
import pytest

from xverify import host
from xverify.framework.discovery import load
from xverify.training import optimizer_check
from xverify.verdict import limits
from xverify.workload.optimizers import optimizer, update

QUICK = ["--warmup", "1", "--rerun", "2"]
SPEC = """from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 3, 8, 8), layout="NCHW")}, outputs={"y": TensorSpec(("N", 5))}, batch=4
)
"""
TORCH = """from torch import nn


def build():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5)
    )
"""
KERAS = """from keras import Input, Model, layers


def build():
    x = image = Input((8, 8, 3))
    x = layers.Conv2D(8, 3, activation="relu", name="0")(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(16, activation="tanh", name="4")(x)
    return Model(image, layers.Dense(5, name="6")(x))
"""
JITTOR = """from jittor import nn


class Net(nn.Module):
    def __init__(self):
        self.a, self.b, self.c = nn.Conv(3, 8, 3), nn.Linear(8, 16), nn.Linear(16, 5)

    def execute(self, x):
        return self.c(self.b(nn.relu(self.a(x)).mean(3).mean(2)).tanh())


build = Net
"""
NAMES = """[jittor]
"0" = "a"
"4" = "b"
"6" = "c"
"""
ATTENTION = """from keras import Input, Model, layers


def build():
    x = Input((6, 8), name="x")
    y = layers.MultiHeadAttention(2, 4, name="attention")(x, x)
    return Model(x, layers.Dense(5, name="head")(layers.GlobalAveragePooling1D()(y)))
"""
SUBJECTS = ["torch:eager"] + [
    subject
    for subject in ("tensorflow:graph", "keras-torch", "jittor")
    if not host.missing(load(subject.partition(":")[0]))
]


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "port"
    place.mkdir()
    for name, text in (
        ("spec.py", SPEC), ("torch.py", TORCH), ("tensorflow.py", KERAS), ("jittor.py", JITTOR), ("names.toml", NAMES)
    ):  # fmt: skip
        (place / name).write_text(text)
    return place


def run(xverify, folder, *more, subjects=SUBJECTS):
    listed = ("--subjects", ",".join(subjects))
    done = xverify("run", folder, *listed, "--task", "train", "--optimizer", "adafactor", *QUICK, *more, timeout=600)
    return done, {row["subject"]: row for row in done.result["rows"]}


def checks(row):
    """(name, verdict, difference) of every check that is not EQUAL."""
    found = row["training"]["checks"]
    return {(each["name"], each["verdict"], each["difference"]) for each in found if each["verdict"] != "EQUAL"}


@pytest.mark.slow
def test_the_own_adafactor_of_each_framework_is_judged_by_its_formula(xverify, folder):
    done, rows = run(xverify, folder, "--weight-decay", "0.1")
    assert checks(rows["torch:eager"]) == set(), done.out
    for subject in set(rows) & {"tensorflow:graph", "keras-torch"}:
        named = {("update", "DRIFT", "eps-added, decayed scale, other axes")}
        assert checks(rows[subject]) <= named | {("curve", "DRIFT", "")}, done.out
        assert checks(rows[subject]) >= named, done.out
    if "jittor" in rows:
        assert (rows["jittor"]["status"], rows["jittor"]["reason"]) == (
            "unsupported",
            "jittor.optim has no Adafactor; run with --match-optimizer",
        )


@pytest.mark.slow
def test_torchs_adafactor_in_every_framework(xverify, folder):
    done, rows = run(xverify, folder, "--weight-decay", "0.1", "--match-optimizer", "--strict")
    assert done.code == 0, done.out + done.err
    assert {row["error"]["verdict"] for row in rows.values()} == {"EQUAL"}, done.out
    assert set(rows) == set(SUBJECTS)


@pytest.mark.slow
def test_a_weight_with_other_axes_than_torchs_is_refused(xverify, folder):
    if "tensorflow:graph" not in SUBJECTS:
        pytest.skip("tensorflow is not installed")
    (folder / "spec.py").write_text(SPEC.replace('3, 8, 8), layout="NCHW"', "6, 8)"))
    (folder / "torch.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)\n        self.head = nn.Linear(8, 5)\n\n"
        "    def forward(self, x):\n        return self.head(self.attention(x, x, x)[0].mean(1))\n\n\nbuild = Net\n"
    )
    (folder / "tensorflow.py").write_text(ATTENTION)
    done, rows = run(xverify, folder, subjects=("torch:eager", "tensorflow:graph"))
    assert "whose axes are not those of torch's weight" in rows["tensorflow:graph"]["reason"], done.out
    assert rows["torch:eager"]["error"]["verdict"] == "EQUAL", done.out


# -- the judge, with weights of several axes ----------------------------------------------------------------------------

SHAPES = [(40, 30), (6, 5, 3, 3), (300, 200)]


def state(shape, step, seed=0):
    """A weight, a gradient, and the state after ``step - 1`` steps, as float32."""
    settings, noise = optimizer("adafactor"), np.random.default_rng(seed)
    w, values = noise.normal(0, 0.05, shape), [np.zeros(shape) for _ in settings.state_names]
    for number in range(1, step):
        w, values = update(settings, w, gradient(shape, noise), values, number)
    return w.astype(np.float32), gradient(shape, noise), [each.astype(np.float32) for each in values]


def gradient(shape, noise):
    return (10.0 ** noise.uniform(-6, -1, shape) * noise.choice((-1, 1), shape)).astype(np.float32)


def float32(settings, w, g, values, step, **more):
    """The step computed in float32."""
    new, after = update(settings, w, g, values, step, **more)
    assert {each.dtype for each in (new, *after)} == {np.dtype(np.float32)}
    return new, after


@pytest.mark.parametrize("step", [1, 2, 21])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_right_step_of_several_axes_is_equal(shape, step):
    settings = optimizer("adafactor", weight_decay=0.1)
    w, g, values = state(shape, step)
    after = float32(settings, w, g, values, step)
    assert 0 < optimizer_check.judge(settings, w, g, values, step, *after)[0] <= limits.EQUAL_RHO


@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
@pytest.mark.parametrize(
    "change",
    [{"lr": 0.01 * (1 + 2e-4)}, {"threshold": 0.5}, {"beta2_decay": -0.5}, {"variants": ("eps-added",)}],
    ids=str,
)
def test_a_wrong_step_of_several_axes_is_not_equal(shape, change):
    settings = optimizer("adafactor")
    w, g, values = state(shape, 3)
    if "variants" in change:  # eps counts where gradients are small
        g, values = g * np.float32(1e-6), [each * np.float32(1e-12) for each in values]
    after = float32(replace(settings, **change), w, g, values, 3)
    assert optimizer_check.judge(settings, w, g, values, 3, *after)[0] > limits.EQUAL_RHO


def test_other_axes_are_right_only_where_they_are_named():
    settings = optimizer("adafactor")
    named = replace(settings, variants=("other axes",))
    w, g, values = state((6, 5, 3, 3), 1)
    after = float32(settings, w, g, values, 1, axes=(0, 1))
    assert optimizer_check.judge(settings, w, g, values, 1, *after, axes=(0, 1))[0] > limits.DRIFT_RHO
    assert optimizer_check.judge(named, w, g, values, 1, *after, axes=(0, 1))[0] <= limits.EQUAL_RHO
    assert optimizer_check.judge(named, w, g, values, 1, *after, axes=(0, 2))[0] > limits.DRIFT_RHO
