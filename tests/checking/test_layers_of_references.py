"""A wrong file is explained by the first layer of its reference, a model folder or code, whose output it does not have."""

import json

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

from conftest import cli
from helpers.modelfiles import save_onnx
from onnx import helper

from xverify.weights import npz

pytestmark = pytest.mark.slow
node = helper.make_node

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.act = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.LeakyReLU(0.1)
        self.side, self.conv2, self.bn2 = nn.Conv2d(6, 8, 1), nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.relu, self.fc = nn.ReLU(), nn.Linear(8, 5)

    def forward(self, x):
        x = self.act(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)) + self.side(x))
        return self.fc(x.mean((2, 3)) * 2.0)

def build():
    return Net()
"""
SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=2, inputs={"x": TensorSpec(("N", 3, 9, 9), layout="NCHW")}, outputs={"y": TensorSpec(("N", 5))})
"""


def drawn():
    random = np.random.default_rng(0)
    shapes = {"conv1": (6, 3, 3, 3), "side": (8, 6, 1, 1), "conv2": (8, 6, 3, 3), "fc": (5, 8)}
    found = {}
    for name, shape in shapes.items():
        found[f"{name}.weight"], found[f"{name}.bias"] = (
            random.standard_normal(shape) * 0.4,
            random.standard_normal(shape[0]),
        )
    for name, size in (("bn1", 6), ("bn2", 8)):
        found |= {f"{name}.{part}": random.standard_normal(size) for part in ("bias", "running_mean")}
        found |= {f"{name}.{part}": random.uniform(0.5, 2, size) for part in ("weight", "running_var")}
        found[f"{name}.num_batches_tracked"] = np.array(0)
    return {name: np.asarray(value, np.int64 if "tracked" in name else np.float32) for name, value in found.items()}


def write(path, *, slope=0.1, relu=True, eps=1e-5, factor=2.0, mean="ReduceMean", pad=1):
    """The model as a converter writes it, with the first batch norm folded into its convolution."""
    w = {name: value for name, value in drawn().items() if "tracked" not in name}
    scale = w["bn1.weight"] / np.sqrt(w["bn1.running_var"] + 1e-5)
    kernel = w["conv1.weight"] * scale[:, None, None, None]
    bias = (w["conv1.bias"] - w["bn1.running_mean"]) * scale + w["bn1.bias"]
    norm = ["bn2.weight", "bn2.bias", "bn2.running_mean", "bn2.running_var"]
    nodes = [
        node("Conv", ["x", "kernel", "bias"], ["a"], "/conv1/Conv", pads=[1] * 4),
        node("LeakyRelu", ["a"], ["b"], "/act/LeakyRelu", alpha=slope),
        node("Conv", ["b", "side.weight", "side.bias"], ["s"], "/side/Conv"),
        node("Conv", ["b", "conv2.weight", "conv2.bias"], ["c"], "/conv2/Conv", pads=[pad, pad, 2 - pad, 2 - pad]),
        node("BatchNormalization", ["c", *norm], ["d"], "/bn2/BatchNormalization", epsilon=eps),
        node("Add", ["d", "s"], ["e"], "/Add"),
        *([node("Relu", ["e"], ["f"], "/relu/Relu")] if relu else []),
        node(mean, ["f" if relu else "e"], ["g"], "/Mean", axes=[2, 3], keepdims=0),
        node("Mul", ["g", "factor"], ["h"], "/Mul"), node("Gemm", ["h", "fc.weight", "fc.bias"], ["y"], "/fc/Gemm", transB=1),
    ]  # fmt: skip
    used = {name for each in nodes for name in each.input}
    arrays = {**w, "kernel": kernel, "bias": bias, "factor": np.float32(factor)}
    held = {name: np.asarray(value, np.float32) for name, value in arrays.items() if name in used}
    return save_onnx(path, nodes, {"x": [2, 3, 9, 9]}, {"y": [2, 5]}, held)


WRONG = {
    "slope": ({"slope": 0.2}, "at layer act (LeakyReLU) of the reference", "from that it computes LeakyRelu '/act/LeakyRelu'"),
    "eps": ({"eps": 0.1}, "at layer bn2 (BatchNorm2d) of the reference", "BatchNormalization '/bn2/BatchNormalization'"),
    "pad": ({"pad": 0}, "at layer conv2 (Conv2d) of the reference, or at bn2 (BatchNorm2d) behind it", "Conv '/conv2/Conv'"),
    "relu": ({"relu": False}, "at layer relu (ReLU) of the reference", "ReduceMean '/Mean'"),
    "factor": ({"factor": 2.1}, "between layer relu (ReLU) and layer fc (Linear) of the reference", "what that layer is given"),
}  # fmt: skip


@pytest.fixture(scope="module", params=["code", "folder"])
def told(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    model = folder / "net"
    model.mkdir()
    (model / "torch.py").write_text(NET)
    (model / "spec.py").write_text(SPEC)
    npz.save_file(drawn(), folder / "weights.npz")
    files = [write(folder / f"{name}.onnx", **settings) for name, (settings, *_) in WRONG.items()]
    files.append(write(folder / "right.onnx"))
    against = f"torch={model / 'torch.py'}:build" if request.param == "code" else model
    weights = folder / "weights.npz"
    done = cli(
        folder, "check", *files, "--against", against, "--weights", weights, "--json", folder / "r.json", timeout=900
    )
    rows = json.loads((folder / "r.json").read_text())["rows"]
    return done, {row["subject"].removesuffix(".onnx"): row["error"] for row in rows if row["task"] == "conversion"}


@pytest.mark.parametrize("name", WRONG)
def test_the_first_layer_that_the_file_does_not_have_is_named(told, name):
    done, errors = told
    _, where, what = WRONG[name]
    assert errors[name]["verdict"] == "DIFFERENT", done.out + done.err
    assert f"the file first differs {where}" in errors[name]["reason"]
    assert what in errors[name]["reason"]


def test_a_right_file_with_a_merged_layer_is_equal(told):
    done, errors = told
    assert errors["right"]["verdict"] in ("IDENTICAL", "EQUAL"), done.out + done.err
