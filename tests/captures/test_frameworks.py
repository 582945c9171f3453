"""Through the command line: models of Keras, Flax, MLX and ONNX Runtime are recorded with their layers, and judged as live ones."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from xverify.environments import store

pytest.importorskip("torch")

pytestmark = pytest.mark.slow
RECORDER = "xverify_recorder.py"
SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec({"x": TensorSpec(("N", 3, 8, 8), layout="NCHW")}, {"y": TensorSpec(("N", 5))}, batch=4)
"""
TORCH = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, eps=1e-5), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(torch.relu(self.bn(self.conv(x))).mean((2, 3)))

def build():
    return Net()
"""
KERAS = """
from keras import Input, Model, layers, ops

def build():
    x = image = Input((8, 8, 3), name="x")
    x = layers.Conv2D(8, 3, padding="same", name="conv")(x)
    x = layers.ReLU()(layers.BatchNormalization(epsilon=1e-5, name="bn")(x))
    x = layers.GlobalAveragePooling2D()(x)
    return Model(image, layers.Dense(5, name="head")(x))
"""
FLAX = """
import jax.numpy as jnp
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.bn = nnx.BatchNorm(8, epsilon=1e-5, rngs=rngs)
        self.head = nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.bn(self.conv(x))).mean((1, 2)))

def build():
    return Net(nnx.Rngs(0))
"""
MLX = """
from mlx import core, nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm(8, eps=1e-5), nn.Linear(8, 5)

    def __call__(self, x):
        return self.head(nn.relu(self.bn(self.conv(x))).mean((1, 2)))

def build():
    return Net()
"""
# The arguments: the file of the model, the weights in torch's layout, and the batches in the layout of the framework.
RECORD = """
import importlib.util, sys
sys.modules["xverify"] = None  # an import of it is an error
import numpy as np, xverify_recorder
weights, x = np.load("weights.npz"), np.random.default_rng(0).standard_normal({shape}).astype("float32")
def built():
    spec = importlib.util.spec_from_file_location("port", {file!r})
    port = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(port)
    return port.build()
{build}
with xverify_recorder.Recording("run.safetensors", model, inputs=["x"], outputs=["y"]) as recording:
    for case in range(2):
        recording.call(x + case)
"""
NORM = ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")
BUILDS = {
    "tensorflow": f"""
model = built()
model.get_layer("conv").set_weights([weights["conv.weight"].transpose(2, 3, 1, 0), weights["conv.bias"]])
model.get_layer("bn").set_weights([weights[name] for name in {NORM}])
model.get_layer("head").set_weights([weights["head.weight"].T, weights["head.bias"]])
""",
    "flax": """
import jax.numpy as jnp
model = built()
model.eval()
model.conv.kernel.set_value(jnp.asarray(weights["conv.weight"].transpose(2, 3, 1, 0)))
model.head.kernel.set_value(jnp.asarray(weights["head.weight"].T))
own = {"conv.bias": model.conv.bias, "head.bias": model.head.bias, "bn.weight": model.bn.scale, "bn.bias": model.bn.bias}
own |= {"bn.running_mean": model.bn.mean, "bn.running_var": model.bn.var}
for name, variable in own.items():
    variable.set_value(jnp.asarray(weights[name]))
""",
    "mlx": """
from mlx import core
model = built()
model.eval()
arrays = {name: core.array(weights[name]) for name in weights.files}
arrays["conv.weight"] = core.array(weights["conv.weight"].transpose(0, 2, 3, 1).copy())
model.load_weights(list(arrays.items()))
""",
    "onnxruntime": """
import onnxruntime
model = onnxruntime.InferenceSession("export.onnx")
""",
}
# A model of flax.linen, which is called as a function.
LINEN = """
import flax.linen as nn, jax
class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(8, (3, 3), name="conv")(x)
        x = nn.relu(nn.BatchNorm(use_running_average=True, epsilon={epsilon}, name="bn")(x))
        return nn.Dense(5, name="head")(x.mean((1, 2)))
def each(**names):
    return {{own: weights[name] for own, name in names.items()}}
parameters = {{
    "conv": {{"kernel": weights["conv.weight"].transpose(2, 3, 1, 0), "bias": weights["conv.bias"]}},
    "bn": each(scale="bn.weight", bias="bn.bias"),
    "head": {{"kernel": weights["head.weight"].T, "bias": weights["head.bias"]}},
}}
variables = {{"params": parameters, "batch_stats": {{"bn": each(mean="bn.running_mean", var="bn.running_var")}}}}
model = jax.jit(lambda x: Net().apply(variables, x))
"""
EXPORT = """
import importlib.util, numpy as np, torch
spec = importlib.util.spec_from_file_location("port", {file!r})
port = importlib.util.module_from_spec(spec)
spec.loader.exec_module(port)
model = port.build().eval()
model.load_state_dict({{name: torch.from_numpy(each) for name, each in np.load("weights.npz").items()}}, strict=False)
options = {{"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False, "dynamo": False}}  # keeps the batch norm
torch.onnx.export(model, torch.zeros(4, 3, 8, 8), "export.onnx", input_names=["x"], output_names=["y"], **options)
"""
PORTS = {"tensorflow": KERAS, "flax": FLAX, "mlx": MLX, "onnxruntime": TORCH}
EPSILON = {"tensorflow": "epsilon=", "flax": "epsilon=", "mlx": "eps=", "onnxruntime": "eps="}


@pytest.fixture
def here(tmp_path, monkeypatch, xverify):
    """A folder with a model folder, its weights as files, and the recorder that the command writes."""
    folder = tmp_path / "here"
    (folder / "port").mkdir(parents=True)
    monkeypatch.chdir(folder)
    (folder / "port" / "spec.py").write_text(SPEC)
    (folder / "port" / "torch.py").write_text(TORCH)
    random = np.random.default_rng(1)
    shapes = {"conv.weight": (8, 3, 3, 3), "conv.bias": (8,), "head.weight": (5, 8), "head.bias": (5,)}
    shapes |= dict.fromkeys(NORM, (8,))
    arrays = {name: random.uniform(0.1, 1.0, shape).astype("float32") for name, shape in shapes.items()}
    np.savez("weights.npz", **arrays)
    assert xverify("judge", "--recorder", RECORDER).code == 0
    return folder


def interpreter(framework):
    """The interpreter that has a framework; the test is skipped where there is none."""
    module = {"tensorflow": "keras", "flax": "flax", "mlx": "mlx", "onnxruntime": "onnxruntime"}[framework]
    if importlib.util.find_spec(module):
        return sys.executable
    found = store.interpreter(store.root() / {"flax": "jax"}.get(framework, framework))
    if not found.exists():
        pytest.skip(f"{framework} is not installed: xverify env create {framework}")
    return str(found)


def execute(here, text, framework="torch"):
    """Run a script in the interpreter of a framework."""
    python = interpreter(framework) if framework != "torch" else sys.executable
    done = subprocess.run([python, "-c", text], capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 0, done.stderr[-2000:]


def layers(done):
    """(verdict, {layer: its verdict}, what was printed) of the only row that is not the reference's."""
    row = json.loads(Path("r.json").read_text())["rows"][-1]
    assert row["error"] is not None, row["reason"]
    found = row["error"]["layers"]["layers"]
    named = {
        each["layer"]: each["verdict"] for each in found if not each["layer"].startswith("(")
    }  # (output) y is none
    return row["error"]["verdict"], named, done.out


def judged(xverify, reference="port"):
    weights = ("--weights", "weights.npz", "--json", "r.json", "--force")
    return layers(xverify("judge", "run.safetensors", "--reference", reference, *weights, timeout=300))


def record(here, framework, wrong=False):
    """Record the model of a framework; the wrong one has another constant in its batch norm."""
    text = PORTS[framework].replace(f"{EPSILON[framework]}1e-5", f"{EPSILON[framework]}{1e-3 if wrong else 1e-5}")
    exported = framework == "onnxruntime"
    interpreter(framework)
    file = here / ("exported.py" if exported else f"port/{framework}.py")
    file.write_text(text)
    if exported:
        execute(here, EXPORT.format(file=str(file)))
    shape = (4, 3, 8, 8) if exported else (4, 8, 8, 3)
    execute(here, RECORD.format(shape=shape, file=str(file), build=BUILDS[framework]), framework)


@pytest.mark.parametrize("framework", list(PORTS))
def test_every_layer_of_a_right_model_is_equal(here, xverify, framework):
    record(here, framework)
    assert judged(xverify)[:2] == ("EQUAL", dict.fromkeys(("conv", "bn", "head"), "EQUAL"))


@pytest.mark.parametrize("framework", list(PORTS))
def test_a_fault_is_found_at_its_layer_as_in_a_live_run(here, xverify, framework):
    record(here, framework, wrong=True)
    verdict, found, said = judged(xverify)
    assert (verdict, found) == ("DIFFERENT", {"conv": "EQUAL", "bn": "DIFFERENT", "head": "EQUAL"}), said
    assert "bn: behaves as eps=0.001" in said
    subject = {"tensorflow": "tensorflow:eager", "onnxruntime": "file=export.onnx"}.get(framework, framework)
    words = ("--weights", "weights.npz", "--no-timing", "--json", "r.json", "--force")
    live = layers(xverify("run", "port", "--subjects", f"torch:eager,{subject}", *words, timeout=300))
    assert live[:2] == (verdict, found), live[2]


@pytest.mark.parametrize(("epsilon", "verdict"), [(1e-5, "EQUAL"), (1e-3, "DIFFERENT")])
def test_a_compiled_function_of_linen_is_recorded_with_its_modules(here, xverify, epsilon, verdict):
    text = RECORD.format(shape=(4, 8, 8, 3), file="", build=LINEN.format(epsilon=epsilon))
    execute(here, text, "flax")
    found = judged(xverify)
    assert found[:2] == (verdict, {"conv": "EQUAL", "bn": verdict, "head": "EQUAL"}), found[2]


def test_code_without_a_spec_is_given_images_with_the_channels_first(here, xverify):
    record(here, "tensorflow")
    verdict, found, said = judged(xverify, "torch=port/torch.py:build")
    assert (verdict, set(found.values())) == ("EQUAL", {"EQUAL"}), said


def test_a_model_in_training_mode_is_not_recorded(here):
    for framework, text in (("flax", FLAX), ("mlx", MLX)):
        (here / "net.py").write_text(text)
        code = "import net, xverify_recorder as r, numpy as np\nmodel = net.build(); model.train()\ntry:\n"
        code += "    with r.Recording('f.safetensors', model) as f: f.call(np.zeros((4, 8, 8, 3), 'float32'))\n"
        execute(
            here, f"{code}except RuntimeError as error: assert 'model.eval()' in str(error)\nelse: assert 0", framework
        )
