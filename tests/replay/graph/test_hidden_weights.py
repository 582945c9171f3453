"""Weights in which a fault would not show. The scales of quantised arrays are none."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from xverify.replay.graph.judge.noise import noise
from xverify.replay.graph.judge.witness import hidden
from xverify.replay.graph.model import Graph

RANDOM = np.random.default_rng(0)


def test_a_scale_that_does_not_show_is_not_told_and_a_weight_is():
    """y = x·v + 1e-20 (x·w + x·(scale·(steps - zero)))."""
    nodes = [
        helper.make_node("DequantizeLinear", ["steps", "scale", "zero"], ["quantised"], axis=1),
        helper.make_node("MatMul", ["x", "quantised"], ["first"]),
        helper.make_node("MatMul", ["x", "w"], ["second"]),
        helper.make_node("Add", ["first", "second"], ["sum"]),
        helper.make_node("Mul", ["sum", "tiny"], ["nothing"]),
        helper.make_node("MatMul", ["x", "v"], ["shown"]),
        helper.make_node("Add", ["shown", "nothing"], ["y"]),
    ]
    arrays = {
        "steps": RANDOM.integers(-100, 100, (16, 16)).astype(np.int8),
        "scale": RANDOM.random(16).astype(np.float32),
        "zero": np.zeros(16, np.int8),
        "w": RANDOM.standard_normal((16, 16)).astype(np.float32),
        "v": RANDOM.standard_normal((16, 16)).astype(np.float32),
        "tiny": np.float32(1e-20),
    }
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 16]) for name in "xy"]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    proto = helper.make_graph(nodes, "graph", sides[:1], sides[1:], constants)
    graph = Graph(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)]))
    inputs = {"x": RANDOM.standard_normal((2, 16)).astype(np.float32)}
    assert hidden(graph, inputs, noise(graph, inputs, 0, 2), 0, 100) == (("w",), 2)
