"""Through the command line: a comparison that other weights would not change is UNTESTED."""

import numpy as np
import pytest
from conftest import write_folder

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(("N", 8))}, batch=4)
"""
MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return RESULT

def build():
    return Net()
"""
SAYS = "with all weights drawn anew, the outputs stay within the limits"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("result", "code"),
    [
        ("x + 1e-12 * self.fc(x)", 4),
        ("torch.where(self.fc(x) > 1e9, -x, x)", 4),
        ("x + 1e-3 * self.fc(x)", 0),
    ],
    ids=["weights that are too small", "a threshold that nothing reaches", "weights that show"],
)
def test_a_run_that_no_weight_could_change_is_untested(xverify, tmp_path, result, code):
    folder = write_folder(tmp_path / "port", ("torch",), spec=SPEC, model=MODEL.replace("RESULT", result))
    done = xverify("run", folder, "--subjects", "torch:eager,onnxruntime", "--no-timing")
    assert done.code == code, done.out + done.err
    assert (SAYS in " ".join(done.out.split())) == (code == 4)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "code"), [(1e-12, 4), (1.0, 0)])
@pytest.mark.parametrize("shape", [(8, 8), (4, 8, 8)], ids=["matrix", "matrices"])
def test_a_file_that_no_weight_could_change_is_untested(xverify, tmp_path, size, code, shape):
    weight = (size * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    given = [*shape[:-2], 2, 8]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Add", ["x", "z"], ["y"])],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, given)],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    done = xverify("check", path)
    assert done.code == code, done.out + done.err
    assert (SAYS in " ".join(done.out.split())) == (code == 4)
