"""Sigmoids that a runtime computes with an absolute precision: small results have few digits, and that is no fault."""

import numpy as np
import pytest

pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 64, 32))}, outputs={"y": TensorSpec(("N", 64, 64))}, batch=4)
"""
LAYERS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.act, self.b = nn.Linear(32, 256), nn.SiLU(), nn.Linear(256, 256)
        self.gate, self.gelu, self.c = nn.Sigmoid(), nn.GELU(), nn.Linear(256, 64)

    def forward(self, x):
        y = self.act(12 * self.a(x))
        y = self.gate(0.5 * self.b(y))
        return self.gelu(3 * self.c(y))


def build():
    return Net()
"""
GLUE = """
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(32, 256), nn.Linear(256, 64)

    def forward(self, x):
        gate, y = self.a(15 * x).chunk(2, -1)
        return self.b(torch.cat([F.silu(gate), y * torch.sigmoid(gate)], -1))


def build():
    return Net()
"""


@pytest.mark.parametrize("model", [pytest.param(LAYERS, id="layers"), pytest.param(GLUE, id="glue code")])
def test_wide_arguments_of_sigmoids_accuse_no_right_runtime(xverify, tmp_path, model):
    (tmp_path / "spec.py").write_text(SPEC)
    (tmp_path / "torch.py").write_text(model)
    done = xverify("run", tmp_path, "--subjects", "torch:eager,onnxruntime", "--no-timing")
    assert done.code == 0, done.out + done.err
    assert "2 of 2 subjects EQUAL" in done.out
    for change in (("12 *", "12.001 *"), ("15 * x", "15.001 * x")):
        port = model.replace(*change)
        if port != model:
            (tmp_path / "torch_port.py").write_text(port)
            done = xverify("run", tmp_path, "--subjects", "torch_port:eager", "--no-timing")
            assert done.code == 1, done.out + done.err


NODE = helper.make_node


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([NODE("Sigmoid", ["z"], ["y"])], id="a sigmoid at the end"),
        pytest.param([NODE("Sigmoid", ["z"], ["s"]), NODE("Mul", ["z", "s"], ["y"])], id="SiLU"),
        pytest.param([NODE("Gelu", ["z"], ["y"])], id="GELU"),
    ],
)
def test_a_file_that_saturates_is_equal_and_a_wrong_weight_is_not(xverify, tmp_path, nodes):
    weight = (4 * np.random.default_rng(0).standard_normal((32, 256))).astype(np.float32)
    for name, factor in (("right", 1), ("wrong", 1.001)):
        changed = weight.copy()
        changed[:, 7] *= factor
        graph = helper.make_graph(
            [NODE("MatMul", ["x", "w"], ["z"]), *nodes],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 32])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(changed, "w")],
        )
        opset = [helper.make_opsetid("", 20)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / f"{name}.onnx")
    done = xverify("check", tmp_path / "right.onnx")
    assert done.code == 0, done.out + done.err
    assert "1 of 1 answers EQUAL" in done.out
    assert xverify("check", tmp_path / "wrong.onnx", "--against", tmp_path / "right.onnx").code == 1
