"""The ONNX export of models that torch's older exporter cannot export, or whose layers it names otherwise."""

import pytest

pytestmark = pytest.mark.slow
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=3, inputs={"x": TensorSpec(("N", 4, 7))}, outputs={"y": TensorSpec(("N", 5))})
"""

# The older exporter knows neither torch.diff nor adaptive pooling whose input is no multiple of its output.
TORCH = """
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(7))

    def forward(self, x):
        return x * self.weight * x.tanh()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.scale, self.norm = nn.Linear(7, 7), Scale(), nn.RMSNorm(7)
        self.pool, self.head = nn.AdaptiveAvgPool1d(3), nn.Linear(12, 5)
        self.register_buffer("table", torch.arange(7.0), persistent=False)

    def forward(self, x):
        x = self.norm(self.scale(self.fc(self.fc(x)))) + self.scale(self.fc(x * self.table))
        return self.head(self.pool(torch.diff(x, dim=2){more}).flatten(1))


def build():
    return Net()
"""


def write(folder, more=""):
    (folder / "spec.py").write_text(SPEC)
    (folder / "torch.py").write_text(TORCH.replace("{more}", more))


def run(xverify, folder):
    return xverify(
        "run", folder, "--subjects", "torch:eager,onnxruntime", "--warmup", 1, "--rerun", 1, "--cases", 2, timeout=600
    )


def test_the_newer_exporter_takes_over_and_every_layer_is_judged(xverify, tmp_path):
    write(tmp_path)
    done = run(xverify, tmp_path)
    error = done.row("onnxruntime")["error"]
    assert (done.code, error["verdict"]) == (0, "EQUAL"), done.out
    found = error["layers"]
    assert (found["compared"], found["known"], found["missing"], found["notes"]) == (5, 5, [], [])
    calls = {layer["layer"]: layer["calls"] for layer in found["layers"]}
    assert (calls["fc"], calls["scale"], calls["norm"]) == (3, 2, 1)
    assert "ONNX export by torch's newer exporter, because the older one cannot make it: " in done.out
    assert "UnsupportedOperatorError" in done.out


def test_the_messages_of_both_exporters_are_told(xverify, tmp_path):
    write(tmp_path, " * torch.special.bessel_j0(x[:, :, 1:])")
    row = run(xverify, tmp_path).row("onnxruntime")
    assert row["status"] == "unsupported"
    assert "no ONNX export: " in row["reason"]
    assert "with torch's newer exporter: " in row["reason"]
    assert "bessel_j0" in row["reason"]


DICTIONARIES = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"in": nn.Linear(7, 6), "act_1": nn.GELU(), "out": nn.ModuleDict({"x": nn.Linear(6, 7)})})

    def forward(self, x):
        return x + self.parts["out"]["x"](self.parts["act_1"](self.parts["in"](x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleDict({"first": Block(), "second": nn.Sequential(Block(), Block())})
        self.pairs = nn.ModuleList([nn.ModuleDict({"left": nn.Linear(7, 7)}), nn.ModuleDict({"right": nn.Linear(7, 7)})])
        self.heads = nn.ModuleDict({"a": nn.Linear(28, 5), "norm": nn.LayerNorm(7)})

    def forward(self, x):
        x = self.blocks["second"](self.blocks["first"](x))
        x = self.pairs[1]["right"](self.heads["norm"](self.pairs[0]["left"](x)))
        return self.heads["a"](self.heads["norm"](x).flatten(1))


def build():
    return Net()
"""


def test_layers_in_dictionaries_of_modules_are_judged_by_themselves(xverify, tmp_path):
    (tmp_path / "spec.py").write_text(SPEC)
    (tmp_path / "torch.py").write_text(DICTIONARIES)
    done = run(xverify, tmp_path)
    error = done.row("onnxruntime")["error"]
    assert (done.code, error["verdict"]) == (0, "EQUAL"), done.out
    found = error["layers"]
    assert (found["compared"], found["known"], found["missing"]) == (13, 13, [])
    calls = {layer["layer"]: layer["calls"] for layer in found["layers"]}
    assert (calls["heads.norm"], calls["blocks.second.1.parts.out.x"]) == (2, 1)
