"""Through the command line: a few large values hide no fault of a port, and chaos is no verdict."""

import pytest
from conftest import write_folder

pytest.importorskip("torch")
pytest.importorskip("tensorflow")

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(("N", 6))}, batch=BATCH)
"""
REFERENCE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 6)

    def forward(self, x):
        y = self.fc(x)
        keep = torch.tensor([1, 1, 0, 1, 0, 1]).bool()
        item = torch.arange(len(x))[:, None] != 1
        return LAST

def build():
    return Net()
"""
PORT = """
import keras
from keras import ops

def build():
    x = keras.Input((8,))
    y = keras.layers.Dense(6, name="fc")(x) * SIGN
    keep = ops.convert_to_tensor([True, True, False, True, False, True])
    item = ops.cumsum(ops.ones_like(x[:, :1]), axis=0) != 2
    return keras.Model(x, LAST)
"""
LASTS = {
    "a masked class": ("y.masked_fill(~keep, -1e9)", "ops.where(keep, y, -1e9)"),
    "an item of another size": ("torch.where(item, y, 1e6 * y)", "ops.where(item, y, 1e6 * y)"),
}
CHAOS = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 6)

    def forward(self, x):
        y = self.fc(x).sigmoid()
        for _ in range(STEPS):
            y = 4 * y * (1 - y)
        return y

def build():
    return Net()
"""
WITHOUT_BIAS = """
import numpy as np

class Net:
    def __init__(self):
        self.weights = {"fc.weight": np.zeros((6, 8), np.float32), "fc.bias": np.zeros(6, np.float32)}

    def __call__(self, x):
        y = 1 / (1 + np.exp(-(x @ self.weights["fc.weight"].T)))
        for _ in range(STEPS):
            y = 4 * y * (1 - y)
        return y.astype(np.float32)

def build():
    return Net()
"""


def folder(tmp_path, batch, **files):
    place = write_folder(tmp_path / "port", (), spec=SPEC.replace("BATCH", str(batch)))
    for name, text in files.items():
        (place / f"{name}.py").write_text(text)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("last", LASTS)
@pytest.mark.parametrize(("sign", "code"), [("1.0", 0), ("-1.0", 1), ("1.0001", 1)])
def test_large_values_hide_no_wrong_sign_and_no_wrong_factor(xverify, tmp_path, last, sign, code):
    theirs, ours = LASTS[last]
    port = PORT.replace("SIGN", sign).replace("LAST", ours)
    place = folder(tmp_path, 4, torch=REFERENCE.replace("LAST", theirs), tensorflow=port)
    done = xverify("run", place, "--subjects", "torch:eager,tensorflow:eager", "--no-timing")
    assert done.code == code, done.out + done.err


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "verdict"), [(80, "UNTESTED"), (3, "DIFFERENT")])
def test_what_rounding_alone_changes_is_untested(xverify, tmp_path, steps, verdict):
    files = {name: text.replace("STEPS", str(steps)) for name, text in (("torch", CHAOS), ("numpy", WITHOUT_BIAS))}
    done = xverify("run", folder(tmp_path, 16, **files), "--subjects", "torch:eager,numpy", "--no-timing")
    assert done.row("numpy")["error"]["verdict"] == verdict
    assert done.code == {"UNTESTED": 4, "DIFFERENT": 1}[verdict]
