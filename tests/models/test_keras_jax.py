"""Complete runs of Keras on torch and on JAX, and of JAX itself, by the command line.

JAX needs a separate environment, ``xverify env create jax``. Without it the tests that need JAX are skipped.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from helpers import normports
from test_zoo import SMALL, agree

from xverify.environments import store as environments
from xverify.framework.discovery import load
from xverify.workload.spec import zoo

pytestmark = pytest.mark.slow

UNWAITED_JAX = """
from xverify.framework.discovery import load

class Adapter(load("jax")):
    name = "unwaited_jax"

    def wait(self, outputs):
        pass
"""


@pytest.fixture
def with_jax(xverify):
    """The command line. Tests are skipped when there is no environment for JAX."""

    def call(*arguments, **settings):
        done = xverify("run", *arguments, **settings)
        assert done.result is not None, done.err
        reasons = [row["reason"] or "" for row in done.result["rows"]]
        absent = [reason for reason in reasons if "type: xverify env create jax" in reason]
        if absent:
            pytest.skip(absent[0])
        return done

    return call


@pytest.mark.parametrize("model", ["mlp", "lstm-cell", "mobilenet-v3-small"])
def test_keras_on_torch_computes_the_same(xverify, model):
    subjects = ["torch:eager", "keras-torch"]
    agree(xverify("run", model, *SMALL, "--subjects", ",".join(subjects)), model, subjects)


@pytest.mark.parametrize(
    ("model", "subjects"),
    [
        ("mlp", ["torch:eager", "jax", "jax:eager", "keras-jax", "keras-jax:eager"]),
        ("gpt-tiny", ["torch:eager", "jax", "keras-jax"]),
        ("dynamic-loop", ["torch:eager", "keras-jax"]),
        ("unet-small", ["torch:eager", "keras-jax"]),
    ],
)
def test_jax_computes_the_same(with_jax, model, subjects):
    agree(with_jax(model, *SMALL, "--subjects", ",".join(subjects)), model, subjects)


@pytest.mark.parametrize("subject", ["jax", "jax:eager"])
def test_jax_trains_as_torch_does(with_jax, subject):
    arguments = ("--task", "train", "--optimizer", "adam", "--match-optimizer", "--strict", "--warmup", 1, "--rerun", 2)
    done = with_jax("mlp", *arguments, "--subjects", f"torch:eager,{subject}")
    assert done.code == 0, done.out + done.err
    checks = done.row(subject)["training"]["checks"]
    found = {check["name"]: check["verdict"] for check in checks}
    # A function has no layers that could be captured.
    assert {name for name, verdict in found.items() if verdict != "EQUAL"} <= {"forward", "backward"}
    assert all(found[name] == "EQUAL" for name in ("weights", "loss", "gradients", "update"))


@pytest.mark.parametrize(
    ("reference", "precision"), [("jax", "float64"), ("keras-jax", "float32"), ("keras-torch", "float32")]
)
def test_the_precision_of_the_reference_is_reported(with_jax, tmp_path, reference, precision):
    port = tmp_path / "mlp"
    shutil.copytree(zoo()["mlp"], port, ignore=shutil.ignore_patterns("torch.py"))
    done = with_jax(port, *SMALL, "--subjects", f"{reference},numpy")
    assert done.result["reference"]["framework"] == reference
    assert done.result["reference"]["precision"] == precision
    assert {row["error"]["verdict"] for row in done.result["rows"]} <= {"EQUAL", "IDENTICAL"}


@pytest.mark.timed
def test_a_jax_adapter_that_does_not_wait_is_refused(no_noise, with_jax, tmp_path):
    port, adapters = tmp_path / "gpt", tmp_path / "adapters"
    shutil.copytree(zoo()["gpt-tiny"], port)
    shutil.copy(port / "jax.py", port / "unwaited_jax.py")
    adapters.mkdir()
    (adapters / "unwaited_jax.py").write_text(UNWAITED_JAX)
    subjects = ("--subjects", "jax,unwaited_jax")
    done = with_jax(port, *subjects, "--batch", 32, "--warmup", 2, "--rerun", 16, frameworks=adapters)
    assert done.row("jax")["speed"]["verdict"] == "BASELINE"
    assert done.row("unwaited_jax")["speed"]["verdict"] == "REFUSED"
    assert "does not wait" in done.row("unwaited_jax")["speed"]["reason"]


def test_keras_layers_may_have_dots_in_their_names(tmp_path):
    code = """
import sys
from keras import layers
from xverify.framework import discovery

def build():
    layer = layers.Dense(3, name="block.0.fc")
    layer.build((None, 2))
    return layer

try:
    build()
except KeyError as error:
    assert "parameter name" in str(error), error
else:
    raise SystemExit("Keras itself allows dots now: take_dotted_names is not needed any more")

sys.modules[discovery.load("keras-torch").__module__].take_dotted_names()
layer = build()
assert layer.name == "block.0.fc"
assert [variable.path for variable in layer.variables] == ["block.0.fc/kernel", "block.0.fc/bias"]
assert set(layer.torch_params) == {"block.0.fc/kernel", "block.0.fc/bias"}
assert {tuple(parameter.shape) for parameter in layer.parameters()} == {(2, 3), (3,)}
layer.torch_params.pop("block.0.fc/bias")  # as Keras does when it untracks a variable
assert len(list(layer.parameters())) == 1
"""
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


# -- training ---------------------------------------------------------------------------------------------------------

NORM_PORT = """
from keras import Input, Model, layers, ops


class Mean(layers.Layer):
    def call(self, x):
        return ops.mean(x, 1)


def build():
    x = image = Input((8, 8, 3), name="x")
    x = layers.Conv2D(6, 3, name="conv")(x)
    x = layers.BatchNormalization(epsilon=1e-5, momentum=0.9, name="bn")(x)
    x = layers.ReLU(name="relu")(x)
    x = layers.Dropout(0.5, name="drop")(x)
    x = Mean(name="rows")(x)
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True), name="both")(x)
    return Model(image, layers.Dense(5, name="fc")(Mean(name="time")(x)))
"""
TRAIN = ("--task", "train", "--warmup", 1, "--rerun", 2)


def norms(folder, old="", new=""):
    """A port with a batch norm, dropout and two directions of a recurrent layer. old, new: a change of it."""
    assert old in NORM_PORT
    for name, text in (
        ("spec", normports.SPEC),
        ("torch", normports.BIDIRECTIONAL),
        ("tensorflow", NORM_PORT.replace(old, new)),
    ):
        (folder / f"{name}.py").write_text(text)
    return folder


def checks(row):
    """The verdicts of the training-parity checks: (check, verdict, how it differs). A busy machine may draw no loss curve."""
    found = [each for each in row["training"]["checks"] if (each["name"], each["verdict"]) != ("curve", "UNTESTED")]
    return {(each["name"], each["verdict"], each["difference"] or "") for each in found}


@pytest.mark.parametrize(
    ("model", "subjects", "batch"),
    [
        ("mlp", ["keras-jax", "keras-jax:eager"], 32),
        ("resnet18", ["keras-jax"], 4),
        ("vit-tiny", ["keras-jax"], 4),
    ],
)
def test_keras_on_jax_trains_as_torch_does(with_jax, model, subjects, batch):
    arguments = ("--optimizer", "adam", "--match-optimizer", "--strict", "--batch", batch)
    done = with_jax(model, *TRAIN, *arguments, "--subjects", ",".join(["torch:eager", *subjects]), timeout=1800)
    assert done.code == 0, done.out + done.err
    for subject in subjects:
        row = done.row(subject)
        assert {verdict for _, verdict, _ in checks(row)} == {"EQUAL"}, done.out
        assert {"forward", "backward", "loss", "gradients", "update"} <= {name for name, *_ in checks(row)}
        assert row["training"]["layers"]["missing"] == []
        assert row["speed"]["seconds_per_step"] > 0


@pytest.mark.parametrize("subject", ["keras-jax", "keras-jax:eager"])
def test_every_kind_of_variable_is_trained_or_updated(with_jax, tmp_path, subject):
    arguments = ("--optimizer", "adamw", "--match-optimizer", "--strict", "--subjects", f"torch:eager,{subject}")
    done = with_jax(norms(tmp_path), *TRAIN, *arguments)
    assert done.code == 0, done.out + done.err
    assert {verdict for _, verdict, _ in checks(done.row(subject))} == {"EQUAL"}
    assert "statistics" in {name for name, *_ in checks(done.row(subject))}
    assert done.row(subject)["training"]["dropout_disabled"] == ["drop"]


def test_the_formulas_of_keras_are_named(with_jax, tmp_path):
    done = with_jax(norms(tmp_path), *TRAIN, "--optimizer", "adam", "--subjects", "torch:eager,keras-jax")
    found = {(name, how) for name, verdict, how in checks(done.row("keras-jax")) if verdict != "EQUAL"}
    assert done.code == 0, done.out + done.err
    assert ("statistics", "biased variance") in found
    assert {how for name, how in found if name == "update"} == {"eps-hat, one bias"}, found


@pytest.mark.parametrize(
    ("old", "new", "check", "says"),
    [
        ("momentum=0.9", "momentum=0.1", "statistics", "momentum weighs the old value"),
        ("Conv2D(6, 3,", "Conv2D(6, 3, trainable=False,", "gradients", "the port does not: frozen"),
        ("epsilon=1e-5", "epsilon=1e-2", "forward", "behaves as eps=0.01"),
        ('Mean(name="time")(x)', 'Mean(name="time")(2 * x)', "forward", ""),
    ],
)
def test_a_fault_of_training_is_found_by_its_check(with_jax, tmp_path, old, new, check, says):
    arguments = ("--match-optimizer", "--subjects", "torch:eager,keras-jax")
    done = with_jax(norms(tmp_path, old, new), *TRAIN, *arguments)
    assert done.code == 1, done.out + done.err
    broken = [
        each for each in done.row("keras-jax")["training"]["checks"] if each["verdict"] not in ("EQUAL", "UNTESTED")
    ]
    assert broken[0]["name"] == check, broken
    assert says in broken[0]["says"], broken


def test_the_optimizers_of_keras_on_jax(xverify, tmp_path):
    if environments.chosen(load("keras-jax")) is None:
        pytest.skip("keras-jax is not installed; type: xverify env create jax")
    table = tmp_path / "table.json"
    done = xverify("optimizers", "--frameworks", "keras-jax", "--json", table, "--quiet", timeout=900)
    assert done.code == 0, done.out + done.err
    found = json.loads(table.read_text())
    assert all(each["verdict"] == "EQUAL" for each in found if each["match"])
    own = {
        (each["settings"]["name"], each["settings"]["weight_decay"]): each["difference"]
        for each in found
        if not each["match"]
    }
    assert own == {
        ("sgd", 0.0): "", ("sgd", 0.01): "decoupled", ("adam", 0.0): "eps-hat", ("adamw", 0.01): "eps-hat",
        ("rmsprop", 0.0): "eps-inside", ("adagrad", 0.0): "eps-inside", ("lion", 0.01): "",
        ("adafactor", 0.01): "eps-added, decayed scale",
    }  # fmt: skip
