"""Through the command line: a comparison that other weights would not change is UNTESTED."""

import numpy as np
import pytest
from conftest import write_folder

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

pytestmark = pytest.mark.usefixtures("in_one_process")

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


@pytest.mark.slow
@pytest.mark.parametrize(("size", "shown"), [(1e-12, True), (1.0, False)])
def test_a_weight_of_a_file_whose_faults_would_not_show_is_named(xverify, tmp_path, size, shown):
    random = np.random.default_rng(0)
    weights = {"large": random.standard_normal((8, 8)), "small": size * random.standard_normal((8, 8))}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "large"], ["a"]),
            helper.make_node("MatMul", ["x", "small"], ["b"]),
            helper.make_node("Add", ["a", "b"], ["y"]),
        ],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    done = xverify("check", path)
    assert done.code == 0, done.out + done.err
    says = "1 of 2 weights; a fault in them would not show on these inputs: `small`"
    assert (says in " ".join(done.out.split())) == shown, done.out


@pytest.mark.slow
def test_a_case_without_finite_values_is_no_witness(xverify, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Div", ["a", "d"], ["y"])],
        "model",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in (("x", [2, 8]), ("d", [1]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8])],
        [numpy_helper.from_array(np.ones((8, 8), np.float32), "w")],
    )
    path, inputs = tmp_path / "model.onnx", tmp_path / "inputs.npz"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    cases = {f"{case}/{name}": array for case in range(2) for name, array in (("x", x), ("d", np.float32([case])))}
    np.savez(inputs, **cases)
    done = xverify("check", path, "--inputs", inputs)
    assert done.code == 0, done.out + done.err
