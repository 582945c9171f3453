"""Complete runs of Keras on torch and on JAX, and of JAX itself, by the command line.

JAX needs a separate environment, ``xverify env create jax``. Without it the tests that need JAX are skipped.
"""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import counts
from test_zoo import SMALL, agree

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


def test_a_jax_adapter_that_does_not_wait_is_refused(with_jax, tmp_path):
    port, adapters = tmp_path / "gpt", tmp_path / "adapters"
    shutil.copytree(zoo()["gpt-tiny"], port)
    shutil.copy(port / "jax.py", port / "unwaited_jax.py")
    adapters.mkdir()
    (adapters / "unwaited_jax.py").write_text(UNWAITED_JAX)
    subjects = ("--subjects", "jax,unwaited_jax")
    done = with_jax(port, *subjects, "--batch", 32, "--warmup", 2, "--rerun", 16, frameworks=adapters)
    assert counts(done.row("jax"), "BASELINE")
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
