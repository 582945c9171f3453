"""``xverify check`` on float64 outputs whose squares underflow: a fault shows, and a right file passes."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

WEIGHTS = np.random.default_rng(0).standard_normal((8, 6))


def linear(path, weights, tanh=False):
    """A product in float64; tanh: of tanh of the input and the product's transpose behind it."""
    nodes = [helper.make_node("MatMul", ["h" if tanh else "x", "w"], ["z" if tanh else "y"])]
    if tanh:
        nodes = [helper.make_node("Tanh", ["x"], ["h"]), *nodes, helper.make_node("Transpose", ["z"], ["y"])]
    shape = [6, 2] if tanh else [2, 6]
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, shape)],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "tanh"), [(1e-200, False), (1e-155, False), (1e-170, True)])
def test_tiny_outputs_are_compared(xverify, tmp_path, scale, tanh):
    right = linear(tmp_path / "right.onnx", WEIGHTS * scale, tanh)
    assert xverify("check", right, "--against", right).code == 0
    for fault in (-1.0, 1 + 1e-9):
        wrong = linear(tmp_path / "wrong.onnx", WEIGHTS * scale * fault, tanh)
        done = xverify("check", wrong, "--against", right)
        assert done.code == 1, done.out + done.err
        assert "conversion" in done.out
        assert "DIFFERENT" in done.out
