"""Dropout with given masks on the command line: right ports, and ports whose dropout layers are wrong."""

import pytest

from xverify import host
from xverify.framework.discovery import load

pytestmark = pytest.mark.slow
QUICK = ["--task", "train", "--dropout-masks", "--warmup", 1, "--rerun", 2, "--batch", 16]

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 3, 8, 8), layout="NCHW")}, outputs={"y": TensorSpec(("N", 5))}, batch=16)
"""
TORCH = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.channels = nn.Conv2d(3, 8, 3, padding=1), nn.Dropout2d(0.25)
        self.fc1, self.drop, self.fc2 = nn.Linear(8, 24), nn.Dropout(0.4), nn.Linear(24, 5)
    def forward(self, x):
        h = self.channels(torch.relu(self.conv(x))).mean((2, 3))
        h = self.drop(h)
        return self.fc2(self.drop(torch.relu(self.fc1(h))))
build = Net
"""
KERAS = """
import keras
from keras import layers
def build():
    x = keras.Input((8, 8, 3))
    h = layers.Conv2D(8, 3, padding="same", activation="relu", name="conv")(x)
    h = layers.SpatialDropout2D(0.25, name="channels")(h)
    h = layers.Dropout(0.4, name="first")(layers.GlobalAveragePooling2D()(h))
    h = layers.Dense(24, activation="relu", name="fc1")(h)
    h = layers.Dropout(0.4, name="second")(h)
    return keras.Model(x, layers.Dense(5, name="fc2")(h))
"""
JITTOR = """
import jittor as jt
from jittor import nn
class Net(nn.Module):
    def __init__(self):
        self.conv, self.channels = nn.Conv2d(3, 8, 3, padding=1), nn.Dropout2d(0.25)
        self.fc1, self.drop, self.fc2 = nn.Linear(8, 24), nn.Dropout(0.4), nn.Linear(24, 5)
    def execute(self, x):
        h = self.channels(nn.relu(self.conv(x))).mean(3).mean(2)
        h = self.drop(h)
        return self.fc2(self.drop(nn.relu(self.fc1(h))))
build = Net
"""
# A dropout layer that does not divide what it keeps by 1 - p.
UNSCALED = """
class PlainDropout(layers.Layer):
    def __init__(self, rate, **settings):
        super().__init__(**settings)
        self.rate = rate
    def call(self, x, training=False):
        if not training or not self.rate:
            return x
        return x * keras.ops.cast(keras.random.uniform(keras.ops.shape(x)) >= self.rate, x.dtype)
def build():
"""


def folder(path, tensorflow=KERAS):
    path.mkdir()
    for name, text in {"spec": SPEC, "torch": TORCH, "tensorflow": tensorflow, "jittor": JITTOR}.items():
        (path / f"{name}.py").write_text(text)
    return path


def dropout_checks(row):
    return [check for check in row["training"]["checks"] if check["name"] == "dropout"]


def test_right_ports_are_equal_with_the_same_masks(xverify, tmp_path):
    others = [each for each in ("tensorflow", "keras-torch", "jittor") if not host.missing(load(each))]
    subjects = ",".join(["torch:eager", "torch:script", *others])
    done = xverify("run", folder(tmp_path / "net"), *QUICK, "--subjects", subjects, timeout=900)
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        checks = dropout_checks(row)
        assert [(check["step"], check["verdict"]) for check in checks] == [(0, "EQUAL"), (2, "EQUAL")], checks
        assert {(check["compared"], check["known"]) for check in checks} == {(3, 3)}
        assert row["training"]["dropout_disabled"], "dropout is off in all other checks and while steps are timed"
    assert "dropout disabled in channels, drop" in done.out


MISSING = {'    h = layers.Dropout(0.4, name="second")(h)\n': ""}
WRONG = {
    'SpatialDropout2D(0.25, name="channels")': 'Dropout(0.25, name="channels")',
    'layers.Dropout(0.4, name="first")': 'layers.Dropout(0.5, name="first")',
    'layers.Dropout(0.4, name="second")': 'PlainDropout(0.4, name="second")',
    "def build():\n": UNSCALED,
}
ELSEWHERE = {
    'name="fc1")(h)': 'name="fc1")(layers.Dropout(0.4, name="second")(h))',
    '    h = layers.Dropout(0.4, name="second")(h)\n': "",
}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (MISSING, ["it drops 2 times (channels, first); the reference drops 3 times (channels, drop, drop)"]),
        (
            WRONG,
            [
                "channels drops single values; the reference's drops whole channels",
                "of the values; the reference's drops 0.4",
                "second multiplies what it keeps by 1; the reference's by 1.667: it is not divided by 1 - p",
            ],
        ),
        (ELSEWHERE, ["second is called between conv and fc1; the reference's drop between fc1 and fc2"]),
    ],
    ids=["missing", "wrong", "elsewhere"],
)
def test_a_wrong_dropout_layer_is_told(xverify, tmp_path, changes, says):
    pytest.importorskip("keras")
    wrong = KERAS
    for old, new in changes.items():
        assert old in wrong
        wrong = wrong.replace(old, new)
    done = xverify("run", folder(tmp_path / "net", wrong), *QUICK, "--subjects", "keras-torch", timeout=600)
    assert done.code == 1, done.out + done.err
    row = done.result["rows"][0]
    assert {check["verdict"] for check in dropout_checks(row)} == {"DIFFERENT"}
    assert {check["verdict"] for check in row["training"]["checks"] if check["name"] != "dropout"} == {"EQUAL"}
    for sentence in says:
        assert sentence in done.out, done.out


def test_a_model_without_dropout_has_nothing_to_give_masks_to(xverify, tmp_path):
    done = xverify("run", "mlp", *QUICK, "--subjects", "torch:eager")
    assert done.code == 4, done.out + done.err  # it is the reference alone
    assert "dropout UNTESTED: there is no dropout layer to give masks to" in done.out


FUNCTIONAL = """
class Sparse(layers.Layer):
    def call(self, x, training=False):
        return keras.random.dropout(x, 0.4) if training else x
def build():
"""


def test_functional_dropout_of_a_port_is_named(xverify, tmp_path):
    pytest.importorskip("keras")
    port = KERAS.replace("def build():\n", FUNCTIONAL).replace('layers.Dropout(0.4, name="second")', "Sparse()")
    done = xverify("run", folder(tmp_path / "net", port), *QUICK, "--subjects", "keras-torch", timeout=600)
    assert [check["verdict"] for check in dropout_checks(done.result["rows"][0])] == ["UNTESTED"]
    assert "although its dropout layers are off: functional dropout (F.dropout) or another random operation" in done.out
