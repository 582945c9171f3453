"""Through the command line: randomness, the precision that a reference claims, and weights that a file brings."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import MODEL, SPEC, write_folder

from xverify.weights import digest

pytestmark = pytest.mark.usefixtures("in_one_process")

FAST = ("--warmup", 2, "--rerun", 16, "--details")
NOISE = "h = ({} np.random.standard_normal(h.shape)).astype(h.dtype)\n        return h @"

NET = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 32)
        self.fc2 = nn.Linear(32, 3)

    def forward(self, x):
        x = F.gelu(self.fc1(x))
        return self.fc2(x)

def build():
    return Net()
"""


def run(xverify, folder, subjects, *extra):
    return xverify("run", folder, "--subjects", subjects, *FAST, *extra)


# -- a random reference -------------------------------------------------------------------------------------------------


def test_nothing_is_compared_with_a_random_reference(xverify, tmp_path):
    noisy = MODEL.replace("return h @", NOISE.format("h + 0.1 *"))
    folder = write_folder(tmp_path / "port", ("numpy",), model=noisy)
    write_folder(folder, ("honest",))
    done = run(xverify, folder, "numpy,honest")
    assert (done.code, done.result["verdict"]) == (1, "FAIL")
    assert "two passes of numpy on one input first differ in the model" in done.result["reference"]["random"]
    for row in done.result["rows"]:
        assert row["error"]["verdict"] == "INVALID"
        assert row["error"]["reason"] == done.result["reference"]["random"]
        assert row["speed"]["verdict"] == "REFUSED"
    assert "Outputs: not compared, because the reference is random" in done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "operation"),
    [
        ("return self.fc2(F.dropout(x, 0.1))", "dropout"),
        ("return self.fc2(x + 0.1 * torch.randn_like(x))", "randn_like"),
    ],
)
def test_a_random_reference_is_told_with_its_place(xverify, tmp_path, line, operation):
    folder = write_folder(tmp_path / "port", ("torch",), model=NET.replace("return self.fc2(x)", line))
    write_folder(folder, ("torch_port",), model=NET.replace("F.gelu", "F.relu"))
    done = run(xverify, folder, "torch:eager,torch_port:eager")
    assert done.code == 1
    place = f"the glue code between `fc1` and `fc2` ({operation} in torch.py, line 14)"
    for subject in ("torch:eager", "torch_port:eager"):
        error = done.row(subject)["error"]
        assert error["verdict"] == "INVALID"
        assert place in error["reason"]
    assert done.result["reference"]["layers"] == 0


@pytest.mark.slow
def test_randomness_that_spares_the_first_item_is_found(xverify, tmp_path):
    line = "x = torch.cat([x[:1], x[1:] + 0.1 * torch.randn_like(x[1:])])\n        return self.fc2(x)"
    folder = write_folder(tmp_path / "port", ("torch",), model=NET.replace("return self.fc2(x)", line))
    error = run(xverify, folder, "torch:eager").row("torch:eager")["error"]
    assert error["verdict"] == "INVALID"
    assert "the reference is random" in error["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["torch.randn(8, 8)", "torch.empty(8, 8).uniform_(-1, 1)"])
def test_a_seeded_table_of_the_constructor_is_the_same_in_float64(xverify, tmp_path, table):
    build = f"torch.manual_seed(7)\n        self.table = {table}\n        self.fc1 ="
    model = NET.replace("self.fc1 =", build).replace("F.gelu(self.fc1(x))", "F.gelu(self.fc1(x @ self.table))")
    folder = write_folder(tmp_path / "port", ("torch",), model=model)
    done = run(xverify, folder, "torch:eager,onnxruntime")
    assert [row["error"]["verdict"] for row in done.result["rows"]] == ["IDENTICAL", "EQUAL"], done.out


@pytest.mark.slow
def test_a_random_layer_of_the_reference_is_named_in_training_too(xverify, tmp_path):
    noisy = NET.replace("return self.fc2(x)", "return self.fc2(torch.dropout(x, 0.5, self.training))")
    spec = SPEC.replace("batch=4,", 'batch=4, task="classification",')
    folder = write_folder(tmp_path / "port", ("torch", "torch_port"), spec=spec, model=noisy)
    done = run(xverify, folder, "torch:eager,torch_port:eager", "--task", "train")
    assert done.code == 1
    reason = done.row("torch_port:eager")["error"]["reason"]
    assert "differ in the glue code between `fc1` and `fc2` (dropout in torch.py, line 14)" in reason
    assert "neither a layer nor F.dropout" in reason
    assert run(xverify, folder, "torch:eager,torch_port:eager").code == 0  # it is off in inference


def test_a_constant_that_build_draws_is_random_too(xverify, tmp_path):
    drawn = MODEL.replace(
        "self.weights = {", "self.scale = np.random.random(6).astype(np.float32)\n        self.weights = {"
    )
    folder = write_folder(
        tmp_path / "port", ("numpy",), model=drawn.replace("h = np.tanh(", "h = self.scale * np.tanh(")
    )
    write_folder(folder, ("honest",))
    done = run(xverify, folder, "numpy,honest")
    assert (done.code, done.result["verdict"]) == (1, "FAIL")
    assert "two models that build() of numpy.py makes first differ in the model" in done.result["reference"]["random"]
    assert "although they have the same weights" in done.out


# -- a random subject ---------------------------------------------------------------------------------------------------


def test_a_subject_whose_calls_differ_by_more_than_rounding_is_invalid_however_little(xverify, tmp_path):
    noisy = MODEL.replace("return h @", NOISE.format("h + 1e-6 * h *"))
    folder = write_folder(tmp_path / "port", ("numpy",))
    write_folder(folder, ("honest",), model=noisy)
    done = run(xverify, folder, "numpy,honest")
    error = done.row("honest")["error"]
    assert error["float32_ratio"] < 100  # far below anything that a share of the result would show
    assert (done.code, error["verdict"]) == (1, "INVALID")
    assert "two calls on one input differ by" in error["reason"]


@pytest.mark.slow
def test_a_random_subject_is_told_with_its_place(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("torch",), model=NET)
    noisy = NET.replace("return self.fc2(x)", "return self.fc2(x + 1e-6 * torch.randn_like(x))")
    write_folder(folder, ("torch_port",), model=noisy)
    done = run(xverify, folder, "torch:eager,torch_port:eager")
    assert done.row("torch:eager")["error"]["verdict"] == "IDENTICAL"
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (1, "INVALID")
    assert "the glue code between `fc1` and `fc2` (randn_like in torch_port.py, line 14)" in error["reason"]


# -- precision ----------------------------------------------------------------------------------------------------------


def test_float64_is_said_only_of_a_model_that_computes_in_it(xverify, tmp_path):
    single = MODEL.replace("return h @", "return np.float32(1) * (h @").replace(
        'w["fc2.bias"]\n', 'w["fc2.bias"]).astype(np.float32)\n'
    )
    folder = write_folder(tmp_path / "port", ("numpy",), model=single)
    write_folder(folder, ("honest",))
    done = run(xverify, folder, "numpy,honest")
    assert done.code == 0
    assert done.result["reference"]["precision"] == "float32"
    assert (
        "checked against numpy in float32 (float64 was asked for, and the model has 1 output (y) in float32" in done.out
    )
    assert "neighbouring float32 value" in done.out
    assert done.row("honest")["error"]["float32_ratio"] < 10


LOADS = """
import keras
from pathlib import Path

def build():
    return keras.saving.load_model(Path(__file__).with_name("model.keras"))
"""
SAVES = """
import sys, keras
x = keras.Input((8,))
h = keras.layers.Dense(6, activation="tanh", name="fc1")(x)
keras.Model(x, keras.layers.Dense(3, name="fc2")(h)).save(sys.argv[1])
"""


@pytest.mark.slow
def test_a_keras_model_that_is_loaded_from_a_file(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("tensorflow",), model=LOADS)
    subprocess.run([sys.executable, "-c", SAVES, folder / "model.keras"], check=True, capture_output=True)
    done = run(xverify, folder, "tensorflow:eager")
    assert done.code == 0, done.out
    reference = done.result["reference"]
    assert reference["precision"] == "float32"
    assert "4 variables (fc1.weight, fc1.bias, fc2.weight, …) in float32" in reference["precision_problem"]
    assert done.out.startswith("Note: this run uses probe weights in place of those that tensorflow.py brings: 2 of 4")
    own = run(xverify, folder, "tensorflow:eager", "--weights", "own")
    assert own.code == 0
    assert own.result["weights"]["replaced"] == ""
    assert own.result["weights"]["source"] == "the weights that build() of tensorflow makes"
    assert own.result["weights"]["digest"] != done.result["weights"]["digest"]


# -- weights that a file brings -----------------------------------------------------------------------------------------


def drawn(seed):
    """The model of numpy with weights that build() draws from this seed, and biases that are constant."""
    draw = f"r = np.random.default_rng({seed})\n        self.weights = {{"
    return (
        MODEL.replace("self.weights = {", draw)
        .replace("np.zeros((6, 8), np.float32)", "r.random((6, 8), np.float32)")
        .replace("np.zeros((3, 6), np.float32)", "r.random((3, 6), np.float32)")
    )


def test_weights_that_the_file_brings_are_not_replaced_silently(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"), model=drawn(7))
    done = run(xverify, folder, "numpy,honest")
    assert done.code == 0
    replaced = done.result["weights"]["replaced"]
    assert (
        "2 of 4 weights are the same in two builds, as from a file or a fixed seed (fc1.weight, fc2.weight)" in replaced
    )
    assert done.out.startswith("Note: this run uses probe weights in place of those that numpy.py brings")
    own = run(xverify, folder, "numpy,honest", "--weights", "own")
    random = np.random.default_rng(7)
    kept = {"fc1.weight": random.random((6, 8), np.float32), "fc2.weight": random.random((3, 6), np.float32)}
    kept |= {"fc1.bias": np.zeros(6, np.float32), "fc2.bias": np.zeros(3, np.float32)}
    assert own.result["weights"]["digest"] == digest(kept)
    assert {row["weights_digest"] for row in own.result["rows"]} == {digest(kept)}


def test_random_and_constant_initialisers_bring_nothing(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"), model=drawn(""))
    assert run(xverify, folder, "numpy,honest").result["weights"]["replaced"] == ""


# -- calls as users make them -------------------------------------------------------------------------------------------

KERAS = """
import keras
from keras import layers

def build():
    x = keras.Input((8,))
    h = layers.Dense(32, name="fc1")(x)
    h = layers.ReLU(name="act")(h)
    h = layers.Dropout(0.5, name="drop")(h)
    return keras.Model(x, layers.Dense(3, name="fc2")(h))
"""
SEQUENTIAL = """
from collections import OrderedDict
from torch import nn


def build():
    return nn.Sequential(OrderedDict(fc1=nn.Linear(8, 32), act=nn.ReLU(), drop=nn.Dropout(0.5), fc2=nn.Linear(32, 3)))
"""


@pytest.mark.slow
def test_a_training_argument_in_a_keras_graph_is_seen_by_a_call_without_one(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("torch",), model=SEQUENTIAL)
    write_folder(folder, ("tensorflow",), model=KERAS)
    subjects = "torch:eager,tensorflow:eager,tensorflow:graph"
    done = run(xverify, folder, subjects)
    assert done.code == 0
    for row in done.result["rows"]:
        assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL")
        assert row["error"]["reason"] is None
    write_folder(folder, ("tensorflow",), model=KERAS.replace("(h)\n    return", "(h, training=True)\n    return"))
    done = run(xverify, folder, subjects, "--strict")
    assert done.code == 1
    for subject in ("tensorflow:eager", "tensorflow:graph"):
        error = done.row(subject)["error"]
        assert error["verdict"] == "DRIFT"
        assert "holds for the model with training=False, as predict calls it" in error["reason"]
        assert "is DIFFERENT: a layer is given training=True" in error["reason"]
