"""Small ONNX networks, and faults that a wrong runtime has at one of their nodes."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there


def arrays(seed=0):
    """The weights of the network."""
    rng = np.random.default_rng(seed)
    shapes = {
        "w1": (16, 3, 3, 3), "b1": (16,), "scale": (16,), "shift": (16,), "mean": (16,), "w2": (24, 16, 3, 3), "w3": (24, 1, 3, 3),
        "w4": (10, 24), "b4": (10,), "gamma": (10,), "beta": (10,),
    }  # fmt: skip
    found = {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in shapes.items()}
    found["variance"] = np.abs(rng.standard_normal(16)).astype(np.float32) * 0.01 + 0.001
    found["ratio"] = np.array([1, 1, 1.7, 1.7], np.float32)
    return found


def network(dtype=TensorProto.FLOAT, changes=None, weights=None):
    """A network with most kinds of layers. changes: name of a node -> attributes that replace its own."""
    attributes = {
        "/conv1/Conv": {"pads": [1, 1, 1, 1]},
        "/bn1/BatchNormalization": {"epsilon": 1e-5},
        "/layer1/layer1.0/conv2/Conv": {"pads": [1, 1, 1, 1], "strides": [2, 2]},
        "/dw/Conv": {"pads": [1, 1, 1, 1], "group": 24},
        "/up/Resize": {"mode": "linear"},
        "/fc/Gemm": {"transB": 1},
        "/norm/LayerNormalization": {},
        "/act/Gelu": {"approximate": "none"},
    }
    for name, change in (changes or {}).items():
        attributes[name] = {**attributes[name], **change}

    def node(op, name, inputs, output):
        return helper.make_node(op, inputs, [output], name=name, **attributes.get(name, {}))

    nodes = [
        node("Conv", "/conv1/Conv", ["x", "w1", "b1"], "c1"),
        node("BatchNormalization", "/bn1/BatchNormalization", ["c1", "scale", "shift", "mean", "variance"], "n1"),
        node("Relu", "/relu/Relu", ["n1"], "r1"),
        node("Conv", "/layer1/layer1.0/conv2/Conv", ["r1", "w2"], "c2"),
        node("Conv", "/dw/Conv", ["c2", "w3"], "c3"),
        node("Resize", "/up/Resize", ["c3", "", "ratio"], "large"),
        node("GlobalAveragePool", "/pool/GlobalAveragePool", ["large"], "p"),
        node("Flatten", "/Flatten", ["p"], "f"),
        node("Gemm", "/fc/Gemm", ["f", "w4", "b4"], "l"),
        node("LayerNormalization", "/norm/LayerNormalization", ["l", "gamma", "beta"], "n2"),
        node("Gelu", "/act/Gelu", ["n2"], "g"),
        node("Softmax", "/Softmax", ["g"], "y"),
        node("ArgMax", "/ArgMax", ["g"], "best"),
    ]
    nodes[-1].attribute.append(helper.make_attribute("axis", 1))
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    constants = {**arrays(), **(weights or {})}
    written = [numpy_helper.from_array(a if name == "ratio" else a.astype(kind), name) for name, a in constants.items()]
    inputs = [helper.make_tensor_value_info("x", dtype, ["n", 3, 20, 20])]
    outputs = [
        helper.make_tensor_value_info("y", dtype, ["n", 10]),
        helper.make_tensor_value_info("best", TensorProto.INT64, ["n", 1]),
    ]
    graph = helper.make_graph(nodes, "network", inputs, outputs, written)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


# What is wrong -> (name of the node, attributes that replace its own, weights that replace its own).
FAULTS = {
    "an epsilon of 1e-3": ("/bn1/BatchNormalization", {"epsilon": 1e-3}, {}),
    "padding on one side": ("/dw/Conv", {"pads": [0, 0, 2, 2]}, {}),
    "another rule of resizing": ("/up/Resize", {"coordinate_transformation_mode": "align_corners"}, {}),
    "tanh instead of erf": ("/act/Gelu", {"approximate": "tanh"}, {}),
    "a dropped bias": ("/fc/Gemm", {}, {"b4": np.zeros(10, np.float32)}),
    "weights of float16": ("/conv1/Conv", {}, {"w1": arrays()["w1"].astype(np.float16).astype(np.float32)}),
    "a stale weight": ("/layer1/layer1.0/conv2/Conv", {}, {"w2": arrays(5)["w2"]}),
}


def quantised_network():
    """Quantised, convolved, dequantised, with a dynamically quantised product behind it."""
    rng = np.random.default_rng(3)
    constants = {
        "xs": np.float32(0.03), "xz": np.uint8(128), "ws": np.float32(0.007), "wz": np.int8(0), "ys": np.float32(0.11),
        "yz": np.uint8(120), "w": rng.integers(-90, 90, (8, 3, 3, 3)).astype(np.int8),
        "b": rng.integers(-500, 500, 8).astype(np.int32), "m": rng.integers(0, 255, (8, 6)).astype(np.uint8), "mz": np.uint8(131),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"], name="quantise"),
        helper.make_node("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["c"], name="conv"),
        helper.make_node("DequantizeLinear", ["c", "ys", "yz"], ["d"], name="dequantise"),
        helper.make_node("GlobalAveragePool", ["d"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("DynamicQuantizeLinear", ["f"], ["dq", "ds", "dz"], name="dynamic"),
        helper.make_node("MatMulInteger", ["dq", "m", "dz", "mz"], ["i"], name="product"),
        helper.make_node("Cast", ["i"], ["r"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["r", "ds"], ["y"], name="scale"),
    ]
    written = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3, 20, 20])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 6])]
    graph = helper.make_graph(nodes, "quantised", inputs, outputs, written)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
