"""Right files whose rounding is not that of independent errors: no right file is accused for it."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there


def write(path, mean, shape):
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node(mean, ["r"], ["p"], "mean", **({"axes": [2, 3]} if mean == "ReduceMean" else {})),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "m"], ["l"], "head"),
        helper.make_node("Softmax", ["l"], ["y"], "softmax"),
    ]
    weights = {"k": random.standard_normal((8, 3, 3, 3)) * 0.2, "m": random.standard_normal((8, 5))}
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [shape[0], 5])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize(
    ("mean", "shape"), [("GlobalAveragePool", (2, 3, 64, 64)), ("ReduceMean", (1, 3, 200, 200))], ids=["pool", "reduce"]
)
def test_a_mean_over_an_image_of_few_colours_is_equal(xverify, tmp_path, mean, shape):
    done = xverify("check", write(tmp_path / "m.onnx", mean, shape), "--json", tmp_path / "r.json")
    assert done.code == 0, done.out + done.err
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert row["error"]["verdict"] == "EQUAL", row["error"]["reason"]
    assert row["error"]["compared"] >= 6


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3)], ids=["lstm", "gru"])
def test_states_behind_closed_gates_have_the_precision_of_a_sigmoid(xverify, tmp_path, kind, gates):
    """A gate that is nearly closed leaves values far below 1, and ONNX Runtime's sigmoids have a fixed absolute precision."""
    random, names = np.random.default_rng(0), ["all", "state", "cell"][: gates - 1]
    shapes = {"all": [5, 1, 2, 6], "state": [1, 2, 6], "cell": [1, 2, 6]}
    graph = helper.make_graph(
        [helper.make_node(kind, ["x", "w", "r"], names, "recurrent", hidden_size=6)],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 2, 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in names],
        [
            numpy_helper.from_array(random.standard_normal((1, gates * 6, size)).astype(np.float32), name)
            for name, size in (("w", 4), ("r", 6))
        ],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    done = xverify("check", path)
    assert done.code == 0, done.out + done.err


def probabilities(path, scale=None):
    """A softmax over 40 classes, most of them near 1/40; with a scale in whole numbers, as its weights."""
    random = np.random.default_rng(1)
    matrix = random.standard_normal((16, 40)).astype(np.float32) * np.float32(0.2)
    weights, nodes = {"m": matrix}, []
    if scale:
        step = np.float32(np.abs(matrix).max() / 127)
        weights = {"w": np.round(matrix / step).astype(np.int8), "ws": step, "wz": np.int8(0)}
        weights |= {"scale": np.float32(scale), "zero": np.uint8(0)}
        nodes = [helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["m"], "weights")]
    nodes += [
        helper.make_node("MatMul", ["x", "m"], ["l"], "head"),
        helper.make_node("Softmax", ["l"], ["p" if scale else "y"], "softmax"),
    ]
    if scale:
        nodes += [
            helper.make_node("QuantizeLinear", ["p", "scale", "zero"], ["q"], "quantise"),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], "dequantise"),
        ]
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 40])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize(("scale", "verdict"), [(1 / 256, "EQUAL"), (1 / 64, "DRIFT")], ids=["fixed", "coarse"])
def test_the_fixed_range_of_a_softmax_is_no_coarse_one(xverify, tmp_path, scale, verdict):
    """Tools give the results of a softmax the range from 0 to 1, of which those of many classes use a small part."""
    file, reference = probabilities(tmp_path / "q.onnx", scale), probabilities(tmp_path / "f.onnx")
    done = xverify("check", file, "--against", reference, "--json", tmp_path / "r.json")
    rows = {row["task"]: row["error"] for row in json.loads((tmp_path / "r.json").read_text())["rows"]}
    assert rows["conversion"]["verdict"] == verdict, done.out + done.err
