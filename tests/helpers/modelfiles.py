"""Small model files of every format, made by the frameworks themselves, each once in a process of its own.

All hold the same model: hidden = relu(x @ W + b); logits = hidden @ V * scale; probabilities = softmax(logits).
"""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from xverify.framework import formats
from xverify.messages import Build
from xverify.messages.files import Compute, ReadSignature
from xverify.processes.worker import Worker
from xverify.weights import npz

COMMON = """
import sys, os
import numpy as np
os.chdir(sys.argv[1])
random = np.random.default_rng(0)
W, b, V = (random.standard_normal(shape).astype(np.float32) for shape in ((4, 6), (6,), (6, 3)))
"""

ONNX = """
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as n

def graph(kind=T.FLOAT, dtype=np.float32):
    nodes = [
        h.make_node("Gemm", ["x", "W", "b"], ["g"], name="/fc1/Gemm"), h.make_node("Relu", ["g"], ["r"], name="/act/Relu"),
        h.make_node("MatMul", ["r", "V"], ["m"], name="/fc2/MatMul"), h.make_node("Mul", ["m", "scale"], ["logits"], name="/Mul"),
        h.make_node("Softmax", ["logits"], ["probabilities"], name="/Softmax", axis=-1),
    ]
    inputs = [h.make_tensor_value_info("x", kind, ["batch", 4]), h.make_tensor_value_info("scale", kind, ["batch", 3])]
    outputs = [h.make_tensor_value_info(name, kind, ["batch", 3]) for name in ("logits", "probabilities")]
    weights = [n.from_array(a.astype(dtype), name) for a, name in ((W, "W"), (b, "b"), (V, "V"))]
    return h.make_graph(nodes, "model", inputs, outputs, weights)

def model(graph, opset=17):
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=9, producer_name="a test")

onnx.save(model(graph()), "model.onnx")
onnx.save(model(graph(T.FLOAT16, np.float16)), "half.onnx")
onnx.save(model(graph()), "external.onnx", save_as_external_data=True, location="external.data", size_threshold=0)
node = [h.make_node("Cast", ["x"], ["f"], to=T.FLOAT), h.make_node("Add", ["f", "f"], ["s"]),
        h.make_node("Cast", ["s"], ["y"], to=T.BFLOAT16)]
both = [h.make_tensor_value_info(name, T.BFLOAT16, [None, 2]) for name in "xy"]
onnx.save(model(h.make_graph(node, "g", both[:1], both[1:])), "bfloat16.onnx")
kinds = {"i": T.INT32, "b": T.BOOL, "s": T.STRING}
values = [h.make_tensor_value_info(name, kind, [2]) for name, kind in kinds.items()]
results = [h.make_tensor_value_info(name + "_out", kind, [2]) for name, kind in kinds.items()]
onnx.save(model(h.make_graph([h.make_node("Identity", [k], [k + "_out"]) for k in kinds], "g", values, results)), "kinds.onnx")
x, y = (h.make_tensor_value_info(name, T.FLOAT, [2]) for name in "xy")
onnx.save(model(h.make_graph([h.make_node("Foo", ["x"], ["y"])], "g", [x], [y])), "unknown.onnx")
onnx.save(model(h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", [x], [y]), 99), "newer.onnx")
"""

TORCH = """
import torch
from typing import NamedTuple

class Results(NamedTuple):
    logits: torch.Tensor
    probabilities: torch.Tensor

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.W, self.b, self.V = (torch.nn.Parameter(torch.from_numpy(a)) for a in (W, b, V))

    def forward(self, x, scale):
        hidden = torch.relu(x @ self.W + self.b) + torch.zeros(1, dtype=torch.float32)
        logits = (hidden @ self.V).to(torch.float32) * scale * torch.tensor([1.0, 1.0, 1.0])
        return Results(logits, torch.softmax(logits, -1, dtype=torch.float32))

class Plain(Model):
    def forward(self, x, scale):
        logits, probabilities = super().forward(x, scale)
        return {"logits": logits, "probabilities": probabilities}

class Writes(torch.nn.Module):
    def forward(self, x):
        torch.save(x, "written")
        return x

example = (torch.ones(2, 4), torch.ones(2, 3))
torch.jit.script(Model().eval()).save("model.torchscript")
torch.jit.trace(Model().eval(), example).save("traced.torchscript")
torch.jit.script(Writes()).save("writes.torchscript")
batch = torch.export.Dim("batch")
program = torch.export.export(Plain().eval(), example, dynamic_shapes={"x": {0: batch}, "scale": {0: batch}})
torch.export.save(program, "model.pt2")
torch.save(torch.nn.Linear(4, 3), "pickled.pt")
half = torch.nn.Linear(4, 3).half().eval()
torch.export.save(torch.export.export(half, (example[0].half(),)), "half.pt2")
torch.jit.trace(half, example[0].half()).save("half.torchscript")
torch.save(torch.nn.Linear(4, 3), "legacy.pt", _use_new_zipfile_serialization=False)
torch.save(torch.nn.Linear(4, 3).state_dict(), "weights.pt")
"""

TENSORFLOW = """
import tensorflow as tf, keras
from tensorflow.core.protobuf import saved_model_pb2
x, scale = keras.Input((4,), name="x"), keras.Input((3,), name="scale")
hidden = keras.layers.Dense(6, activation="relu", name="fc1")(x)
logits = keras.layers.Multiply(name="logits")([keras.layers.Dense(3, use_bias=False, name="fc2")(hidden), scale])
probabilities = keras.layers.Softmax(name="probabilities")(logits)
model = keras.Model([x, scale], [logits, probabilities])
model.get_layer("fc1").set_weights([W, b])
model.get_layer("fc2").set_weights([V])
model.save("model.keras")
model.save("model.h5")
hidden = keras.layers.Lambda(lambda t: t + 1.0)(x)
keras.Model(x, hidden).save("code.keras")
keras.Model(x, hidden).save("code.h5")
model.save_weights("only.weights.h5")

@tf.function(input_signature=[tf.TensorSpec([None, 4], name="x"), tf.TensorSpec([None, 3], name="scale")])
def serve(x, scale):
    logits, probabilities = model([x, scale])
    return {"logits": logits, "probabilities": probabilities}

@tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
def double(x):
    return {"twice": 2 * x}

held = tf.Module()
held.serve, held.double = serve, double
held.weights = [variable.value for variable in model.variables]  # only what a tf.Module holds is saved and restored
tf.saved_model.save(held, "saved", signatures={"serving_default": serve, "double": double})

@tf.function(input_signature=[tf.TensorSpec([2], name="x")])
def calls(x):
    return {"y": tf.ensure_shape(tf.numpy_function(lambda v: v, [x], tf.float32), [2])}
caller = tf.Module()
caller.calls = calls
tf.saved_model.save(caller, "python", signatures=calls)

# Keras 2 saves the state of an optimizer as slot variables of an object that only Keras 2 knows.
import shutil
shutil.copytree("saved", "with-optimizer")
proto = saved_model_pb2.SavedModel()
proto.ParseFromString(open("with-optimizer/saved_model.pb", "rb").read())
nodes = proto.meta_graphs[0].object_graph_def.nodes
variables = [i for i, node in enumerate(nodes) if node.WhichOneof("kind") == "variable"]
optimizer = nodes.add()
optimizer.user_object.identifier = "optimizer"
optimizer.user_object.version.producer = 1
optimizer.user_object.version.min_consumer = 1
nodes[0].children.add(node_id=len(nodes) - 1, local_name="optimizer")
optimizer.slot_variables.add(original_variable_node_id=variables[0], slot_name="m", slot_variable_node_id=variables[1])
open("with-optimizer/saved_model.pb", "wb").write(proto.SerializeToString())

converter = tf.lite.TFLiteConverter.from_saved_model("saved", signature_keys=["serving_default"])
open("model.tflite", "wb").write(converter.convert())
functions = [serve.get_concrete_function(), double.get_concrete_function()]
converter = tf.lite.TFLiteConverter.from_concrete_functions(functions, held)
open("two.tflite", "wb").write(converter.convert())

@tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
def nonpositive(x):
    return {"logits": tf.minimum(tf.matmul(x, tf.constant(W[:, :2])), tf.zeros(2))}
converter = tf.lite.TFLiteConverter.from_concrete_functions([nonpositive.get_concrete_function()], tf.Module())
open("zeros.tflite", "wb").write(converter.convert())

# A matrix is large enough for the converter to quantise it.
x = keras.Input((64,), name="x")
wide = keras.Model(x, keras.layers.Dense(3, name="fc2")(keras.layers.Dense(64, activation="relu", name="fc1")(x)))
images = [[random.standard_normal((1, 64)).astype(np.float32)] for _ in range(8)]
for name in ("float16", "dynamic", "static"):
    converter = tf.lite.TFLiteConverter.from_keras_model(wide)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if name == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if name == "static":
        converter.representative_dataset = lambda: iter(images)
    open(name + ".tflite", "wb").write(converter.convert())
keras.config.set_dtype_policy("mixed_float16")
keras.Model(x, keras.layers.Dense(3, name="fc2")(x)).save("mixed.keras")
keras.config.set_dtype_policy("float32")
"""

OPENVINO = """
import openvino
openvino.save_model(openvino.Core().read_model(sys.argv[2]), "model.xml", compress_to_fp16=False)
openvino.save_model(openvino.Core().read_model(sys.argv[2]), "half.xml", compress_to_fp16=True)
"""

_FOLDER = tempfile.TemporaryDirectory(prefix="modelfiles-")


@functools.cache
def made(maker: str, *arguments: str) -> Path:
    """The folder of the files that a maker makes. A test that needs an absent framework is skipped."""
    for module in {"OPENVINO": ("openvino",), "TENSORFLOW": ("tensorflow",), "TORCH": ("torch",), "ONNX": ("onnx",)}[
        maker
    ]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    folder = Path(tempfile.mkdtemp(prefix=maker.lower(), dir=_FOLDER.name))
    script = folder / "make.py"
    script.write_text(COMMON + globals()[maker])
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(
        [sys.executable, script, folder, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def file(maker: str, name: str) -> Path:
    """One of the files."""
    return made(maker, *([str(file("ONNX", "model.onnx"))] if maker == "OPENVINO" else [])) / name


# Format -> (maker, file) of the model in it.
FILES = {
    "onnx": ("ONNX", "model.onnx"),
    "onnx-openvino": ("ONNX", "model.onnx"),
    "openvino-ir": ("OPENVINO", "model.xml"),
    "savedmodel": ("TENSORFLOW", "saved"),
    "keras": ("TENSORFLOW", "model.keras"),
    "h5": ("TENSORFLOW", "model.h5"),
    "tflite": ("TENSORFLOW", "model.tflite"),
    "torchscript": ("TORCH", "model.torchscript"),
    "pt2": ("TORCH", "model.pt2"),
}


def inputs(batch: int = 5, cases: int = 2) -> dict[str, np.ndarray]:
    """Inputs of the model: "case/name" -> array."""
    random = np.random.default_rng(1)
    shapes = {"x": (batch, 4), "scale": (batch, 3)}
    return {
        f"{case}/{name}": random.standard_normal(shape).astype(np.float32)
        for case in range(cases)
        for name, shape in shapes.items()
    }


def expected(x: np.ndarray, scale: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs of the model in float64."""
    random = np.random.default_rng(0)
    W, b, V = (random.standard_normal(shape).astype(np.float32).astype(np.float64) for shape in ((4, 6), (6,), (6, 3)))
    logits = np.maximum(x @ W + b, 0) @ V * scale
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return {"logits": logits, "probabilities": powers / powers.sum(-1, keepdims=True)}


def skip_without(form: type[formats.ModelFile]) -> None:
    """Skip a test when the runtime of a format is not installed."""
    for package, module in form.needs.items():
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{package} is not installed")


class Opened:
    """A file in a worker of its own. A ``with`` statement starts it."""

    def __init__(self, path: Path, folder: Path, on: str = "", timeout: float = 120.0, **options: object) -> None:
        self.path, self.options = path, options
        self.form = formats.recognise(path, on)
        skip_without(self.form)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.worker = Worker(self.form, sys.executable, folder, 1, "cpu", timeout)

    def __enter__(self) -> Opened:
        self.worker.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.close()

    def build(self):
        return self.worker.ask(Build(str(self.path), self.options, None, {}, {}, {}))

    def signature(self):
        return self.worker.ask(ReadSignature())

    def compute(self, arrays, **more):
        npz.save_file(arrays, self.folder / "inputs.npz")
        self.worker.ask(Compute(str(self.folder / "inputs.npz"), str(self.folder / "outputs.npz"), **more))
        return npz.load_file(self.folder / "outputs.npz")


def save_onnx(path: Path, nodes: list, inputs: dict, outputs: dict, weights: dict) -> Path:
    """Write an ONNX file of these nodes. inputs, outputs: name -> shape, of float32. weights: name -> array."""
    from onnx import TensorProto, helper, numpy_helper, save

    def described(shapes: dict) -> list:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]

    arrays = [numpy_helper.from_array(np.array(array, order="C"), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "model", described(inputs), described(outputs), arrays)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path
