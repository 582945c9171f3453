"""Ports to Keras with layers of the whole table, from the command line."""

import pytest

pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=4,
    inputs={"x": TensorSpec(("N", 6, 5)), "film": TensorSpec(("N", 2, 4, 7, 6), layout="NCDHW")},
    outputs={"y": TensorSpec(("N", 5))},
)
"""

TORCH = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(2, 4, (2, 3, 3))
        self.norm = nn.GroupNorm(2, 4)
        self.gru = nn.GRU(5, 8, batch_first=True)
        self.lstm = nn.LSTM(8, 6, batch_first=True, bidirectional=True)
        self.shift = nn.Parameter(torch.zeros(12))
        self.slope = nn.PReLU()
        self.fc = nn.Linear(16, 5)

    def forward(self, x, film):
        y, _ = self.lstm(self.gru(x)[0])
        z = self.norm(self.conv(film)).mean((2, 3, 4))
        return self.fc(torch.cat([self.slope(y[:, -1] + self.shift), z], 1))


def build():
    return Net()
"""

KERAS = """
import keras
from keras import layers, ops


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.conv = layers.Conv3D(4, (2, 3, 3), name="conv")
        self.norm = layers.GroupNormalization(2, epsilon=1e-5, name="norm")
        self.gru = layers.GRU(8, return_sequences=True, name="gru")
        self.there = layers.LSTM(6, return_sequences=True, name="there")
        self.back = layers.LSTM(6, return_sequences=True, go_backwards=True, name="back")
        self.shift = self.add_weight(shape=(12,), name="shift")
        self.slope = layers.PReLU(shared_axes=[1], name="slope")
        self.fc = layers.EinsumDense("ab,bc->ac", 5, bias_axes="c", name="fc")

    def call(self, x, film):
        x = self.gru(x)
        y = ops.concatenate([self.there(x), ops.flip(self.back(x), 1)], -1)
        z = ops.mean(self.norm(self.conv(film)), (1, 2, 3))
        return self.fc(ops.concatenate([self.slope(y[:, -1] + self.shift), z], 1))


def build():
    model = Net()
    model(ops.zeros((1, 6, 5)), ops.zeros((1, 4, 7, 6, 2)))
    return model
"""

NAMES = """
[tensorflow]
"lstm.*_l0" = "there.*_l0"
"lstm.*_l0_reverse" = "back.*_l0"
"""

PROJECTION = """
class Projection(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 5), name="kernel")
        self.bias = self.add_weight(shape=(5,), name="bias")

    def call(self, x):
        return x @ self.kernel + self.bias
"""
FC = 'layers.EinsumDense("ab,bc->ac", 5, bias_axes="c", name="fc")'
FLAGS = ("--subjects", "torch:eager,tensorflow:eager", "--warmup", 1, "--rerun", 2, "--cases", 2)


def run(xverify, folder, keras=KERAS):
    for name, text in (("spec.py", SPEC), ("torch.py", TORCH), ("tensorflow.py", keras), ("names.toml", NAMES)):
        (folder / name).write_text(text)
    return xverify("run", folder, *FLAGS, timeout=600)


def test_a_port_with_new_layers_and_two_layers_that_are_one_is_equal(xverify, tmp_path):
    done = run(xverify, tmp_path)
    error = done.row("tensorflow:eager")["error"]
    assert error["verdict"] == "EQUAL", done.out + done.err
    judged = {layer["layer"]: layer["verdict"] for layer in error["layers"]["layers"]}
    assert judged == dict.fromkeys(["conv", "norm", "gru", "lstm", "slope", "fc", "(output) y"], "EQUAL")
    assert error["layers"]["missing"] == []


def test_the_message_about_an_unknown_layer_proposes_the_axes_and_is_right(xverify, tmp_path):
    port = KERAS.replace("\n\nclass Net", f"\n{PROJECTION}\n\nclass Net").replace(FC, 'Projection(name="fc")')
    reason = run(xverify, tmp_path, port).row("tensorflow:eager")["reason"]
    declaration = 'canonical_weights = {"kernel": ("weight", (1, 0))}'
    assert "Projection 'fc' has the variable 'kernel' of shape (16, 5), whose canonical form is not known" in reason
    assert "the reference has fc.bias (5,), fc.weight (5, 16)" in reason or "fc.weight (5, 16), fc.bias (5,)" in reason
    assert declaration in reason
    declared = declaration.replace("}", ', "bias": ("bias", None)}')
    port = port.replace("class Projection(layers.Layer):", f"class Projection(layers.Layer):\n    {declared}\n")
    done = run(xverify, tmp_path, port)
    assert done.row("tensorflow:eager")["error"]["verdict"] == "EQUAL", done.out
