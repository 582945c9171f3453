"""TensorLayer, in an environment of its own."""

import os
import subprocess
import sys

import pytest
from helpers.marks import with_long

from xverify.environments import store as environments


@pytest.fixture
def call(xverify, monkeypatch):
    """The command line with a folder of environments."""

    def call(*arguments, root):
        monkeypatch.setenv("XVERIFY_ENVIRONMENTS", str(root))
        return xverify(*arguments)

    return call


@pytest.fixture(scope="module")
def tensorlayer(tmp_path_factory):
    """The folder of environments with TensorLayer's: the user's, or one for these tests."""
    there = environments.find("tensorlayer")
    if there and there.current:
        yield there.folder.parent
        return
    root = tmp_path_factory.mktemp("environments")
    variables = {**os.environ, "XVERIFY_ENVIRONMENTS": str(root)}
    xverify = [sys.executable, "-m", "xverify", "env"]
    subprocess.run([*xverify, "create", "tensorlayer"], env=variables, check=True)
    yield root
    subprocess.run([*xverify, "remove", "tensorlayer"], env=variables, check=True)


def agree(done):
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL"), row["error"]["reason"]
        assert row["weights_digest"] == done.result["weights"]["digest"]


@pytest.mark.slow
@pytest.mark.parametrize("model", with_long(["mlp", "vgg16"], "vgg16"))
def test_tensorlayer_computes_the_same(call, tensorlayer, model):
    subjects = "torch:eager,tensorlayer:eager,tensorlayer:graph"
    small = ("--batch", 1, "--cases", 2, "--warmup", 1, "--rerun", 2)
    agree(call("run", model, "--subjects", subjects, *small, root=tensorlayer))


@pytest.mark.slow
def test_tensorlayer_learns_with_the_optimizers_of_keras(call, tensorlayer):
    subjects = ("--subjects", "torch:eager,tensorlayer:eager", "--warmup", 1, "--rerun", 2)
    done = call("run", "mlp", "--task", "train", "--optimizer", "adam", *subjects, root=tensorlayer)
    assert done.code == 0, done.out + done.err
    checks = done.row("tensorlayer:eager")["training"]["checks"]
    assert {check["verdict"] for check in checks if check["name"] in ("loss", "gradients")} == {"EQUAL"}
    assert {check["difference"] for check in checks if check["name"] == "update"} == {"eps-hat"}
    assert {check["verdict"] for check in checks if check["name"] == "forward"} == {"UNTESTED"}


TINY_SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 3, 8, 8), layout="NCHW")}, outputs={"y": TensorSpec(("N", 5))})
"""
TINY_TORCH = """
from collections import OrderedDict
from torch import nn

def build():
    layers = {"conv": nn.Conv2d(3, 6, 3), "relu": nn.ReLU(), "flatten": nn.Flatten(), "fc": nn.Linear(216, 5)}
    return nn.Sequential(OrderedDict(layers))
"""
TINY_TENSORLAYER = """
import tensorflow as tf
from tensorlayer.layers import BatchNorm2d, Conv2d, Dense, Flatten, Input, Lambda, Transpose
from tensorlayer.models import Model

def build():
    inputs = Input((None, 8, 8, 3), name="x")
    x = Conv2d(6, (3, 3), padding="VALID", name="conv")(inputs)
    x = Lambda(tf.nn.relu, name="relu")(x)
    x = Transpose((0, 3, 1, 2))(x)
    x = Flatten()(x)
    return Model(inputs, Dense(5, name="fc")(x))
"""
TRANSPOSE = "    x = Transpose((0, 3, 1, 2))(x)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instead", "says"),
    [
        (TRANSPOSE, "PASS"),
        ("", "DIFFERENT"),  # flattened in the order H,W,C
        (
            '    x = BatchNorm2d(name="bn")(x)\n' + TRANSPOSE,
            "BatchNorm2d 'bn' keeps weights that have no known canonical form",
        ),
    ],
)
def test_the_order_of_channels_and_unknown_layers_of_tensorlayer(call, tensorlayer, tmp_path, instead, says):
    port = tmp_path / "port"
    port.mkdir()
    (port / "spec.py").write_text(TINY_SPEC)
    (port / "torch.py").write_text(TINY_TORCH)
    (port / "tensorlayer.py").write_text(TINY_TENSORLAYER.replace(TRANSPOSE, instead))
    done = call(
        "run", port, "--subjects", "torch:eager,tensorlayer:eager", "--warmup", 1, "--rerun", 8, root=tensorlayer
    )
    row = done.row("tensorlayer:eager")
    if says == "PASS":
        agree(done)
    elif says == "DIFFERENT":
        assert row["error"]["verdict"] == "DIFFERENT"
    else:
        assert says in row["reason"]
