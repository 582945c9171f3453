"""Through the command line: a file whose outputs no weight could change is UNTESTED, in every format that shows its weights."""

import os
import subprocess
import sys

import pytest

TORCH = """
import torch

class Net(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.fc, self.factor = torch.nn.Linear(8, 6), factor

    def forward(self, x):
        return 2 * x[:, :6] + self.factor * self.fc(x)

for name, factor in (("blind", 1e-12), ("plain", 1.0)):
    net, x = Net(factor).eval(), torch.ones(4, 8)
    torch.export.save(torch.export.export(net, (x,)), name + ".pt2")
    torch.jit.trace(net, x).save(name + ".torchscript")
    torch.onnx.export(net, (x,), name + ".onnx", dynamo=False)
"""
OPENVINO = """
import openvino
for name in ("blind", "plain"):
    openvino.save_model(openvino.convert_model(name + ".onnx"), name + ".xml", compress_to_fp16=False)
"""
KERAS = """
import keras
import tensorflow as tf

for name, factor in (("blind", 1e-12), ("plain", 1.0)):
    x = keras.Input((8,), batch_size=2, name="x")
    model = keras.Model(x, 2 * x[:, :6] + factor * keras.layers.Dense(6)(x))
    model.save(name + ".keras")
    tf.saved_model.save(model, name)
    open(name + ".tflite", "wb").write(tf.lite.TFLiteConverter.from_keras_model(model).convert())
"""
SAYS = "with all weights drawn anew, the outputs stay within the limits"
pytestmark = pytest.mark.slow


def make(script, folder):
    settings = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def judged(xverify, folder, ending):
    """The exit codes for the file whose weights do not show, and for the other one."""
    codes = {}
    for name in ("blind", "plain"):
        path = folder / (name + ending)
        # The formats of torch can be computed in float64, and are judged alone.
        more = {".pt2": [], ".torchscript": ["--shape", "x=4x8"]}.get(ending, ["--against", path])
        done = xverify("check", path, *more)
        assert (SAYS in " ".join(done.out.split())) == (name == "blind"), done.out + done.err
        codes[name] = done.code
    return codes


def test_files_of_torch_and_openvino(xverify, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("torch")
    make(TORCH, tmp_path)
    for ending in (".pt2", ".torchscript"):
        assert judged(xverify, tmp_path, ending) == {"blind": 4, "plain": 0}
    pytest.importorskip("openvino")
    make(OPENVINO, tmp_path)
    assert judged(xverify, tmp_path, ".xml") == {"blind": 4, "plain": 0}


def test_files_of_tensorflow(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    make(KERAS, tmp_path)
    for ending in (".keras", "", ".tflite"):
        assert judged(xverify, tmp_path, ending) == {"blind": 4, "plain": 0}
