"""Complete runs of Flax by the command line: the zoo, every kind of layer, faults, messages and training.

Flax needs a separate environment, ``xverify env create jax``. Without it these tests are skipped.
"""

import json
import subprocess

import pytest
from helpers import normports
from test_zoo import SMALL, agree

from xverify.environments import store as environments
from xverify.framework import discovery
from xverify.weights import flax as table

FLAX = discovery.load("flax")
NEEDS_FLAX = pytest.mark.skipif(
    environments.chosen(FLAX) is None, reason="flax is not installed; type: xverify env create jax"
)
pytestmark = [pytest.mark.slow, NEEDS_FLAX]

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=4,
    inputs={"image": TensorSpec(("N", 3, 8, 8), layout="NCHW"), "row": TensorSpec(("N", 4, 10), layout="NCL")},
    outputs={"image": TensorSpec(("N", 5, 11, 14), layout="NCHW"), "scores": TensorSpec(("N", 10, 8))},
)
"""
TORCH = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 2, 1)
        self.norms = nn.Sequential(nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True))
        self.grouped = nn.Conv2d(8, 6, (3, 2), padding=1, groups=2, bias=False)
        self.deep = nn.Conv3d(6, 4, (1, 3, 3))
        self.up = nn.ConvTranspose2d(4, 6, 3, 2)
        self.prelu = nn.PReLU()
        self.again = nn.ConvTranspose2d(6, 5, (3, 2), 2)
        self.line = nn.Conv1d(4, 6, 3, padding=1)
        self.norm = nn.LayerNorm(6, eps=1e-6)
        self.rms = nn.RMSNorm(6, eps=1e-6)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.lstm = nn.LSTM(6, 5, batch_first=True)
        self.both = nn.LSTM(5, 4, batch_first=True, bidirectional=True)
        self.general = nn.Linear(8, 8)

    def forward(self, image, row):
        x = self.grouped(self.norms(self.conv(image)))
        x = self.deep(x[:, :, None])[:, :, 0]
        x = self.again(self.prelu(self.up(x)))
        y = self.rms(self.norm(self.line(row).transpose(1, 2)))
        y = y + self.attention(y, y, y, need_weights=False)[0]
        y = self.both(self.lstm(y)[0])[0]
        return x, self.general(y)


def build():
    return Net()
"""
PORT = """
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 8, (3, 3), 2, padding=1, rngs=rngs)
        self.norms = nnx.Sequential(
            nnx.BatchNorm(8, momentum=0.9, rngs=rngs), nnx.GroupNorm(8, 2, epsilon=1e-5, rngs=rngs),
            nnx.InstanceNorm(8, epsilon=1e-5, rngs=rngs),
        )
        self.grouped = nnx.Conv(8, 6, (3, 2), padding=1, feature_group_count=2, use_bias=False, rngs=rngs)
        self.deep = nnx.Conv(6, 4, (1, 3, 3), padding="VALID", rngs=rngs)
        self.up = nnx.ConvTranspose(4, 6, (3, 3), (2, 2), padding="VALID", rngs=rngs)
        self.prelu = nnx.PReLU()
        self.again = nnx.ConvTranspose(6, 5, (3, 2), (2, 2), padding="VALID", transpose_kernel=True, rngs=rngs)
        self.line = nnx.Conv(4, 6, (3,), padding=1, rngs=rngs)
        self.norm = nnx.LayerNorm(6, rngs=rngs)
        self.rms = nnx.RMSNorm(6, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 6, decode=False, rngs=rngs)
        self.lstm = nnx.RNN(nnx.LSTMCell(6, 5, rngs=rngs))
        cells = [nnx.RNN(nnx.OptimizedLSTMCell(5, 4, rngs=rngs)) for _ in range(2)]
        self.both = nnx.Bidirectional(*cells)
        self.general = nnx.LinearGeneral((2, 4), (8,), axis=(-2, -1), rngs=rngs)

    def __call__(self, image, row):
        x = self.grouped(self.norms(self.conv(image)))
        x = self.deep(x[:, None])[:, 0]
        x = self.again(self.prelu(self.up(x)))
        y = self.rms(self.norm(self.line(row)))
        y = y + self.attention(y)
        y = self.both(self.lstm(y))
        return x, self.general(y.reshape(*y.shape[:2], 2, 4))


def build():
    return Net(nnx.Rngs(0))
"""


def write(folder, port, torch=TORCH, spec=SPEC):
    for name, content in (("spec", spec), ("torch", torch), ("flax", port)):
        (folder / f"{name}.py").write_text(content)
    return folder


@pytest.mark.parametrize(
    ("model", "subjects"),
    [
        ("mlp", ["torch:eager", "flax", "flax:eager"]),
        ("gpt-tiny", ["torch:eager", "flax"]),
        ("vit-tiny", ["torch:eager", "flax"]),
        ("lstm-fused", ["torch:eager", "flax"]),
        ("resnet18", ["torch:eager", "flax"]),
    ],
)
def test_flax_computes_the_same(xverify, model, subjects):
    agree(xverify("run", model, *SMALL, "--subjects", ",".join(subjects)), model, subjects)


def test_every_kind_of_layer_gets_the_weights_of_torch(xverify, tmp_path):
    done = xverify("run", write(tmp_path, PORT), *SMALL, "--subjects", "torch:eager,flax,flax:eager")
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        assert row["weights_digest"] == done.result["weights"]["digest"]
        assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL"), row["error"]["reason"]
    layers = done.row("flax")["error"]["layers"]
    assert layers["matched"] == {}
    assert {layer["verdict"] for layer in layers["layers"]} == {"EQUAL"}
    seen = {layer["layer"] for layer in layers["layers"]}
    wanted = {
        "conv",
        "norms.0",
        "norms.1",
        "norms.2",
        "grouped",
        "deep",
        "up",
        "prelu",
        "again",
        "line",
        "norm",
        "rms",
        "lstm",
    }
    assert wanted <= seen


@pytest.mark.parametrize(
    ("right", "wrong", "layer"),
    [
        ("nnx.GroupNorm(8, 2,", "nnx.GroupNorm(8, 4,", "norms.1"),
        ("nnx.LayerNorm(6, rngs", "nnx.LayerNorm(6, epsilon=1e-2, rngs", "norm"),
        ("(3, 3), 2, padding=1, rngs", "(3, 3), 2, padding='SAME', rngs", "conv"),
    ],
)
def test_a_fault_is_found_in_its_layer(xverify, tmp_path, right, wrong, layer):
    assert right in PORT
    done = xverify("run", write(tmp_path, PORT.replace(right, wrong)), *SMALL, "--subjects", "torch:eager,flax")
    row = done.row("flax")
    assert done.code == 1
    assert row["error"]["verdict"] == "DIFFERENT"
    wrong_layers = [each["layer"] for each in row["error"]["layers"]["layers"] if each["verdict"] == "DIFFERENT"]
    assert wrong_layers == [layer]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "nnx.RNN(nnx.GRUCell(4, 4, rngs=nnx.Rngs(0)))",
            "GRUCell 'inner.cell' cannot be given torch's weights: torch multiplies",
        ),
        (
            "nnx.Einsum('nlc,cd->nld', (4, 4), rngs=nnx.Rngs(0))",
            "Einsum 'inner' cannot be given torch's weights: its equation",
        ),
        (
            "nnx.LinearGeneral(4, 4, batch_axis={0: 4}, rngs=nnx.Rngs(0))",
            "LinearGeneral 'inner' has the variable 'kernel', whose",
        ),
    ],
)
def test_a_layer_that_no_torch_module_is_says_so(xverify, tmp_path, text, says):
    port = f"""
from flax import nnx

class Net(nnx.Module):
    def __init__(self):
        self.inner = {text}

    def __call__(self, image, row):
        return image, self.inner(row)

def build():
    return Net()
"""
    done = xverify("run", write(tmp_path, port), *SMALL, "--subjects", "torch:eager,flax")
    assert done.code == 3
    assert says in done.row("flax")["reason"]


def test_a_model_that_is_no_module_of_nnx_says_so(xverify, tmp_path):
    port = "from flax import linen\n\ndef build():\n    return linen.Dense(3)\n"
    done = xverify("run", write(tmp_path, port), *SMALL, "--subjects", "torch:eager,flax")
    assert done.code == 2
    assert "flax.py: build returns a value of type flax.linen.linear.Dense, which is no model of flax" in done.err


def test_every_layer_of_flax_with_weights_is_known_or_listed_with_the_reason():
    code = """
import importlib, inspect, json, pkgutil
import flax.nnx.nn as package
from flax import nnx
found = {}
for info in pkgutil.iter_modules(package.__path__):
    module = importlib.import_module(f"{package.__name__}.{info.name}")
    for name, kind in vars(module).items():
        if inspect.isclass(kind) and issubclass(kind, nnx.Module) and kind.__module__ == module.__name__:
            found[name] = bool(set(inspect.signature(kind.__init__).parameters) & {"rngs", "negative_slope_init", "layer_instance"})
print(json.dumps(found))
"""
    environment = environments.chosen(FLAX)
    done = subprocess.run([environment.interpreter, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"Linear", "Conv", "LSTMCell", "PReLU"} <= {name for name, weighted in found.items() if weighted}
    # They have a stream of random numbers and no weights, or are the parent of cells.
    plain = {"Dropout", "RNNCellBase"}
    known = {*table.LAYERS, *table.COMPUTED, *table.RECURRENT, *table.UNKNOWN}
    assert {name for name, weighted in found.items() if weighted} - plain <= known
    assert known - set(found) == set(), "these are no layers of Flax any more"


# -- training ---------------------------------------------------------------------------------------------------------

NORM_PORT = """
from flax import nnx
from xverify.models.flax_layers import LSTM, ReLU


class Net(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 6, (3, 3), padding="VALID", rngs=rngs)
        self.bn = nnx.BatchNorm(6, momentum=0.9, rngs=rngs)
        self.relu = ReLU()
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.lstm = LSTM(6, 4, rngs=rngs)
        self.fc = nnx.Linear(4, 5, rngs=rngs)

    def __call__(self, x):
        x = self.drop(self.relu(self.bn(self.conv(x))))
        return self.fc(self.lstm(x.mean(1))[:, -1])


def build():
    return Net(nnx.Rngs(0))
"""


@pytest.mark.parametrize("subject", ["flax", "flax:eager"])
def test_matched_training_with_batch_norms_is_equal(xverify, tmp_path, subject):
    write(tmp_path, NORM_PORT, normports.TORCH, normports.SPEC)
    arguments = ("--task", "train", "--optimizer", "adam", "--match-optimizer", "--subjects", f"torch:eager,{subject}")
    done = xverify("run", tmp_path, *arguments, "--warmup", 1, "--rerun", 2, "--strict")
    assert done.code == 0, done.out + done.err
    checks = done.row(subject)["training"]["checks"]
    assert {check["verdict"] for check in checks} == {"EQUAL"}
    assert {"forward", "backward", "loss", "gradients", "update"} <= {check["name"] for check in checks}


def test_the_running_variance_of_flax_is_named(xverify, tmp_path):
    write(tmp_path, NORM_PORT, normports.TORCH, normports.SPEC)
    arguments = ("--task", "train", "--subjects", "torch:eager,flax")
    done = xverify("run", tmp_path, *arguments, "--warmup", 1, "--rerun", 2)
    checks = done.row("flax")["training"]["checks"]
    found = {check["difference"] for check in checks if check["verdict"] != "EQUAL"}
    assert "biased variance" in found
    assert found <= {"biased variance", "one bias", "rounding"}


def test_the_optimizers_of_optax_are_compared_with_those_of_torch(xverify, tmp_path):
    done = xverify("optimizers", "--frameworks", "flax", "--json", tmp_path / "table.json", "--quiet")
    assert done.code == 0, done.out + done.err
    found = json.loads((tmp_path / "table.json").read_text())
    own = {}
    for each in found:
        settings = each["settings"]
        if each["match"]:
            assert each["verdict"] == "EQUAL"
        else:
            own[settings["name"], settings["recipe"]["amsgrad"]] = (each["verdict"], each["difference"])
    named = {key: difference for key, (verdict, difference) in own.items() if verdict != "EQUAL"}
    assert named == {
        ("rmsprop", False): "eps-inside",
        ("adagrad", False): "eps-inside",
        ("adam", True): "corrected maximum",
        ("adafactor", False): "eps-added, other axes",
    }
    assert ("lion", False) in own
