"""One small network in files of every format: as it is, and with an attribute of one node changed.

image -> convolution -> batch norm -> leaky ReLU -> depthwise convolution -> ReLU -> average pooling -> softmax -> mean -> linear
"""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TORCH = """
import sys, os, torch
os.chdir(sys.argv[1])
class Net(torch.nn.Module):
    def __init__(self, slope=0.1, padded=True):
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.bn, self.act = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.LeakyReLU(slope)
        self.dw, self.pool = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8), torch.nn.AvgPool2d(3, 2, 1, count_include_pad=padded)
        self.fc = torch.nn.Linear(8, 5)
        self.bn.running_mean.normal_(), self.bn.running_var.uniform_(0.5, 2)
    def forward(self, x):
        hidden = self.pool(torch.relu(self.dw(self.act(self.bn(self.conv1(x))))))
        return self.fc((torch.softmax(hidden, 1) * 10).mean((2, 3)))
x = torch.ones(2, 3, 12, 12)
for name, arguments in {"right": {}, "slope": {"slope": 0.2}, "pool": {"padded": False}}.items():
    net = Net(**arguments).eval()
    torch.export.save(torch.export.export(net, (x,)), name + ".pt2")
    torch.jit.trace(net, x).save(name + ".torchscript")
    torch.onnx.export(net, (x,), name + ".onnx", dynamo=False, input_names=["x"], output_names=["y"], opset_version=17)
class Sequences(torch.nn.Module):
    def __init__(self, approximate="none"):
        super().__init__()
        torch.manual_seed(1)
        self.table, self.first = torch.nn.Embedding(50, 16), torch.nn.Linear(16, 16)
        self.gru, self.gelu = torch.nn.GRU(16, 8, batch_first=True), torch.nn.GELU(approximate)
    def forward(self, ids):
        states, _ = self.gru(self.gelu(self.first(self.table(ids))))
        one, two = states.split(4, -1)
        return {"turned": torch.cat([two, one], -1), "mean": states.mean(1)}
ids = torch.zeros(2, 7, dtype=torch.int64)
for name, approximate in {"sequences": "none", "tanh": "tanh"}.items():
    net = Sequences(approximate).eval()
    torch.export.save(torch.export.export(net, (ids,)), name + ".pt2")
    torch.jit.trace(net, ids, strict=False).save(name + ".torchscript")
"""

OPENVINO = """
import sys, openvino
from pathlib import Path
for file in Path(sys.argv[2]).glob("*.onnx"):
    target = Path(sys.argv[1]) / (file.stem + ".xml")
    openvino.save_model(openvino.Core().read_model(str(file)), str(target), compress_to_fp16=False)
"""

KERAS = """
import sys, os, numpy as np, keras, tensorflow as tf
os.chdir(sys.argv[1])
L = keras.layers
def net(slope=0.1, stride=2):
    x = keras.Input((12, 12, 3), name="x", batch_size=2)
    h = L.BatchNormalization(name="bn")(L.Conv2D(8, 3, padding="same", name="conv1")(x))
    h = L.DepthwiseConv2D(3, padding="same", name="dw")(L.LeakyReLU(negative_slope=slope, name="act")(h))
    h = L.AveragePooling2D(2, stride, name="pool")(L.ReLU(name="relu")(h))
    h = L.Rescaling(10.0, name="scale")(L.Softmax(name="soft")(h))
    model = keras.Model(x, L.Dense(5, name="fc")(L.GlobalAveragePooling2D(name="gap")(h)))
    random = np.random.default_rng(1)
    def draw(w):
        return random.uniform(0.5, 2, w.shape) if "variance" in w.path else random.standard_normal(w.shape) * 0.5
    arrays = [draw(w) for w in model.weights]
    model.set_weights([each.astype("float32") for each in arrays])
    return model
for name, arguments in {"right": {}, "slope": {"slope": 0.2}, "pool": {"stride": 1}}.items():
    model = net(**arguments)
    model.save(name + ".keras")
    model.export(name + "_saved", verbose=False)
    open(name + ".tflite", "wb").write(tf.lite.TFLiteConverter.from_keras_model(model).convert())
for name, slope in {"right": 0.1, "steep": 0.6}.items():
    random, converter = np.random.default_rng(2), tf.lite.TFLiteConverter.from_keras_model(net(slope))
    converter.optimizations, converter.inference_input_type = [tf.lite.Optimize.DEFAULT], tf.int8
    converter.inference_output_type = tf.int8
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.representative_dataset = lambda: ([random.standard_normal((2, 12, 12, 3)).astype("f")] for _ in range(30))
    open(name + "_whole.tflite", "wb").write(converter.convert())
for name, epsilon in {"sequences": 1e-3, "epsilon": 1e-1}.items():
    keras.utils.set_random_seed(1)
    ids = keras.Input((7,), dtype="int32", name="ids", batch_size=2)
    hidden = L.Embedding(50, 16, name="table")(ids)
    hidden = L.LayerNormalization(epsilon=epsilon, name="norm")(L.MultiHeadAttention(2, 8, name="attention")(hidden, hidden))
    states = L.GRU(8, return_sequences=True, name="gru")(hidden)
    model = keras.Model(ids, keras.ops.concatenate([states[:, :, 4:], states[:, :, :4]], -1))
    model.save(name + ".keras")
    model.export(name + "_saved", verbose=False)
"""

_FOLDER = tempfile.TemporaryDirectory(prefix="faultyfiles-")
_NEEDS = {"TORCH": ("torch", "onnx"), "OPENVINO": ("openvino", "torch", "onnx"), "KERAS": ("tensorflow", "keras")}


@functools.cache
def made(maker: str) -> Path:
    """The folder of the files that a maker makes. A test that needs an absent framework is skipped."""
    for module in _NEEDS[maker]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    folder = Path(tempfile.mkdtemp(prefix=maker.lower(), dir=_FOLDER.name))
    arguments = [str(made("TORCH"))] if maker == "OPENVINO" else []
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
    (folder / "make.py").write_text(globals()[maker])
    command = [sys.executable, str(folder / "make.py"), str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder
