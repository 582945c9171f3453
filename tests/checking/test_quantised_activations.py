"""Activations of files that ONNX Runtime quantised: a ReLU stands before the quantiser, behind it, or in its zero point."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
quantization = pytest.importorskip("onnxruntime.quantization")
pytest.importorskip("torch")
from helpers import reproducers  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

from xverify import host  # noqa: E402
from xverify.verdict.findings import SATURATES  # noqa: E402

node, SIZES = helper.make_node, {"x": [1, 3, 12, 12], "y": [1, 24, 1, 1]}
BETWEEN = {"Relu": ["a"], "Clip": ["a", "zero", "six"]}


class Calibration(quantization.CalibrationDataReader):
    def __init__(self):
        self.left = iter(range(100, 116))

    def get_next(self):
        seed = next(self.left, None)
        return seed and {"x": np.random.default_rng(seed).standard_normal(SIZES["x"]).astype("f")}


def write(path, between):
    """Two convolutions with a ReLU or a ReLU6 between them."""
    random = np.random.default_rng(1)
    constants = {"c1": random.standard_normal((16, 3, 3, 3)) * 0.3, "c2": random.standard_normal((24, 16, 3, 3)) * 0.1}
    constants |= {"zero": np.float32(0), "six": np.float32(6)} if between == "Clip" else {}
    nodes = [
        node("Conv", ["x", "c1"], ["a"], "conv1", pads=[1] * 4), node(between, BETWEEN[between], ["r"], "between"),
        node("Conv", ["r", "c2"], ["b"], "conv2", pads=[1] * 4), node("GlobalAveragePool", ["b"], ["y"], "pool"),
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in SIZES.items()]
    arrays = [numpy_helper.from_array(np.asarray(array, "f"), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def quantised(path, form, kind, symmetric):
    """The file in whole numbers, as ONNX Runtime's quantiser makes it."""
    made, kinds = path.with_name("int8.onnx"), quantization.QuantType
    quantization.quantize_static(
        path, made, Calibration(), quant_format=quantization.QuantFormat[form], activation_type=kinds[kind],
        weight_type=kinds.QInt8, per_channel=True,
        extra_options={"ActivationSymmetric": symmetric, "UseQDQContribOps": kind == "QInt16"},
    )  # fmt: skip
    return made


def without(path, name):
    """The file without this node."""
    model = onnx.load(path)
    left = next(each for each in model.graph.node if each.name == name)
    for each in model.graph.node:
        each.input[:] = [left.input[0] if taken == left.output[0] else taken for taken in each.input]
    model.graph.node.remove(left)
    onnx.save(model, path)


def checked(xverify, tmp_path, file, reference):
    done = xverify("check", file, "--against", reference, "--json", tmp_path / "r.json", "--force")
    assert "Traceback" not in done.err, done.err
    return next(
        row["error"] for row in json.loads((tmp_path / "r.json").read_text())["rows"] if row["task"] == "conversion"
    )


@pytest.mark.parametrize(
    ("between", "form", "kind", "symmetric"),
    [
        ("Relu", "QDQ", "QInt8", True), ("Relu", "QOperator", "QUInt8", True), ("Relu", "QDQ", "QUInt8", False),
        ("Relu", "QDQ", "QInt16", True), ("Clip", "QDQ", "QInt8", True), ("Clip", "QOperator", "QInt8", False),
    ],
)  # fmt: skip
def test_a_relu_beside_the_quantiser_or_in_its_zero_point_is_right(xverify, tmp_path, between, form, kind, symmetric):
    right = write(tmp_path / "right.onnx", between)
    error = checked(xverify, tmp_path, quantised(right, form, kind, symmetric), right)
    assert error["verdict"] == "EQUAL", error["reason"]


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_a_relu_that_is_missing_is_named(xverify, tmp_path, form):
    right = write(tmp_path / "right.onnx", "Relu")
    made = quantised(right, form, "QInt8", True)
    without(made, "between")
    error = checked(xverify, tmp_path, made, right)
    assert error["verdict"] == "DIFFERENT"
    assert "the reference has Relu 'between' before it" in error["reason"], error["reason"]


def dynamic(path):
    """A product of x, which is quantised when it runs, and a weight with numbers up to 127."""
    w = np.random.default_rng(3).integers(80, 128, (12, 6)).astype(np.int8)
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "steps"), node("MatMulInteger", ["q", "w", "z"], ["i"], "product"),
        node("Cast", ["i"], ["f"], "cast", to=TensorProto.FLOAT), node("Mul", ["s", "size"], ["both"], "sizes"),
        node("Mul", ["f", "both"], ["y"], "scaled"),
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, size]) for name, size in (("x", 12), ("y", 6))]
    arrays = [
        numpy_helper.from_array(np.asarray(array), name) for name, array in {"w": w, "size": np.float32(0.01)}.items()
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_a_kernel_that_saturates_is_named_with_its_remedy(xverify, tmp_path, monkeypatch):
    file = dynamic(tmp_path / "dynamic.onnx")
    reproducers.plant(tmp_path, monkeypatch, node="product", saturates=True)
    done = xverify("check", file, "--input-range", "0,1", "--json", tmp_path / "r.json")
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert (done.code, row["error"]["verdict"]) == (1, "DIFFERENT"), done.out + done.err
    assert SATURATES in row["error"]["reason"]
    assert "product" in row["error"]["reason"]


@pytest.mark.parametrize("flags", ["avx2 avx512f", "avx2 avx_vnni", "avx2 avx512_vnni", ""])
def test_a_processor_without_vnni_is_told_up_front(xverify, tmp_path, monkeypatch, flags):
    monkeypatch.setattr(host, "_flags", lambda: set(flags.split()))
    done = xverify("check", dynamic(tmp_path / "dynamic.onnx"))
    told = f"other processor: {SATURATES}" in " ".join(done.out.split())
    assert told == (flags == "avx2 avx512f"), done.out
