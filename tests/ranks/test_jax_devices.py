"""Devices of JAX as ranks, through the command line: right ways are EQUAL, and mistakes are found and named."""

import pytest
from helpers.rankmodels import NET, SPEC

from xverify.environments import store
from xverify.framework import discovery

pytest.importorskip("torch")
JAX = discovery.load("jax")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(store.chosen(JAX) is None, reason=f"JAX is not installed; type: {store.remedy(JAX)}"),
]
TRAIN = ("--task", "train", "--steps", "3", "--threads", "2", "--no-timing")
# A layer that is divided by its outputs, and one that is divided by its inputs, whose parts of a result are added up.
DIVIDED = """
import numpy as np
import jax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

SPECS = {"fc1.weight": P("ranks", None), "fc1.bias": P("ranks"), "fc2.weight": P(None, "ranks"), "fc2.bias": P()}
SHAPES = {"fc1.weight": (16, 12), "fc1.bias": 16, "fc2.weight": (5, 16), "fc2.bias": 5}


class Net:
    mesh = None

    def __init__(self):
        self.weights = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}

    def apply(self, weights, x):
        if self.mesh is None:
            return self.part(weights, x)
        return jax.shard_map(self.part, mesh=self.mesh, in_specs=(SPECS, P()), out_specs=P())(weights, x)

    def part(self, w, x):
        y = jax.numpy.tanh(x @ w["fc1.weight"].T + w["fc1.bias"]) @ w["fc2.weight"].T
        if self.mesh is not None:
            y = lax.psum(y, "ranks")
        return y + w["fc2.bias"]


def parallelize(model, mesh):
    model.mesh = mesh
    for name, spec in SPECS.items():
        model.weights[name] = jax.device_put(model.weights[name], NamedSharding(mesh, spec))
    return model


def build():
    return Net()
"""
TWICE = """

@jax.custom_vjp
def twice(w):
    return w


twice.defvjp(lambda w: (w, None), lambda _, g: (2 * g,))
"""


@pytest.fixture
def folder(tmp_path):
    """Makes a model folder with torch's model and this one in JAX."""

    def make(text):
        place = tmp_path / "net"
        place.mkdir()
        (place / "spec.py").write_text(SPEC)
        (place / "torch.py").write_text(NET)
        (place / "jax.py").write_text(text)
        return place

    return make


def checks(done):
    return {each["name"]: each for each in done.row("jax")["training"]["checks"]}


@pytest.mark.parametrize(("plan", "ranks"), [("ddp", 2), ("fsdp", 2), ("ddp", 4)])
def test_models_of_the_zoo_train_equally(xverify, plan, ranks):
    words = ("--ranks", ranks, "--plan", plan, "--subjects", "jax,flax", "--optimizer", "adam")
    done = xverify("run", "mlp", *TRAIN, *words)
    assert done.code == 0, done.out + done.err
    for subject in ("jax", "flax"):
        row = done.row(subject)
        assert row["error"]["verdict"] == "EQUAL"
        assert row["training"]["ranks"] == f"{ranks} ranks, plan {plan}, {' + '.join([str(32 // ranks)] * ranks)} items"
    assert done.row("flax")["training"]["checks"][1]["compared"] == 3  # its layers are whole on devices


def test_a_step_of_two_devices_is_timed_beside_that_of_one(xverify):
    done = xverify("run", "mlp", *TRAIN[:-1], "--ranks", 2, "--subjects", "flax", "--warmup", 2, "--rerun", 8)
    assert done.code == 0, done.out + done.err
    alone, ranked = done.result["rows"]
    assert (alone["subject"], ranked["subject"]) == ("flax (one process)", "flax")
    assert [row["error"]["verdict"] for row in (alone, ranked)] == ["EQUAL", "EQUAL"]
    assert [row["speed"]["calls"] for row in (alone, ranked)] == [8, 8]
    layers = [row["training"]["layers"] for row in (alone, ranked)]
    assert [each["compared"] for each in layers] == [3, 3]
    assert [each["subject"] for each in layers] == ["flax (one process)", "flax"], "each is judged by its own"
    assert "the process of 2 devices has 2 threads, and so has that of one device alone" in " ".join(done.out.split())


def test_a_model_that_shard_map_divides(xverify, folder):
    done = xverify("run", folder(DIVIDED), *TRAIN, "--ranks", 2, "--plan", "tp", "--subjects", "jax")
    assert done.code == 0, done.out + done.err
    assert checks(done)["gradients"]["verdict"] == "EQUAL"


def test_a_bias_on_each_device_is_named(xverify, folder):
    wrong = DIVIDED.replace('w["fc2.weight"].T\n', 'w["fc2.weight"].T + w["fc2.bias"]\n')
    wrong = wrong.replace('return y + w["fc2.bias"]', "return y")
    done = xverify("run", folder(wrong), *TRAIN, "--ranks", 2, "--plan", "tp", "--subjects", "jax")
    assert done.code == 1, done.out + done.err
    assert "as if fc2.bias were added on each of the 2 ranks" in checks(done)["loss"]["says"]


def test_a_gradient_that_is_reduced_twice_is_named(xverify, folder):
    wrong = DIVIDED.replace('+ w["fc1.bias"])', '+ twice(w["fc1.bias"]))') + TWICE
    done = xverify("run", folder(wrong), *TRAIN, "--ranks", 2, "--plan", "own", "--subjects", "jax")
    assert done.code == 1, done.out + done.err
    assert "the gradient of fc1.bias: it is 2 times the right one" in checks(done)["gradients"]["says"]


def test_what_devices_cannot_do_is_one_line(xverify, folder):
    place = folder(DIVIDED.replace("def parallelize", "def divide"))
    for words, says in (
        (
            ("--ranks", 2, "--plan", "tp", "--subjects", "jax"),
            "jax.py defines no parallelize(model, mesh), which --plan tp",
        ),
        (
            ("--ranks", 2, "--shards", "3,1", "--subjects", "jax"),
            "jax divides a batch evenly: take a --batch that 2 divides",
        ),
        (("--ranks", 2, "--subjects", "jax:eager"), "several ranks train as the model is written: name jax"),
    ):
        done = xverify("run", place, *TRAIN, *words)
        assert done.code == 3, done.out + done.err
        assert says in " ".join(done.out.split())
