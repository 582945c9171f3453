"""The quantised weights of OpenVINO files are compared with those of the float reference, one by one."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
openvino = pytest.importorskip("openvino")

from conftest import cli  # noqa: E402  they are there
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from openvino import opset13 as ops  # noqa: E402

pytestmark = pytest.mark.slow

SHAPE = (4, 3, 8, 8)
LEVELS = 256


def drawn():
    random = np.random.default_rng(3)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (16, 512), "b2": (16,)}
    sizes = {"w1": 0.3, "b1": 0.5, "w2": 0.05, "b2": 0.5}
    return {name: (random.standard_normal(shape) * sizes[name]).astype("f") for name, shape in shapes.items()}


def reference(folder):
    """The network in float: a convolution, a ReLU and a linear layer."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Flatten", ["r"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], name="head", transB=1),
    ]
    sides = [
        helper.make_tensor_value_info(*each)
        for each in (("x", TensorProto.FLOAT, SHAPE), ("y", TensorProto.FLOAT, (SHAPE[0], 16)))
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in drawn().items()]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "float.onnx"
    )
    return folder / "float.onnx"


def limited(x, low, high):
    """A FakeQuantize with a zero among its steps."""
    scale = (high - low) / (LEVELS - 1)
    low = np.round(low / scale) * scale
    ends = [ops.constant(np.float32(end)) for end in (low, low + scale * (LEVELS - 1))]
    return ops.fake_quantize(x, *ends, *ends, LEVELS)


def stepped(weight, compressed, change=lambda numbers, scale: (numbers, scale)):
    """A weight of 8 bits with a scale for each channel: whole numbers, or a FakeQuantize of them."""
    axes = tuple(range(1, weight.ndim))
    scale = np.abs(weight).max(axes, keepdims=True) / 127
    numbers, scale = change(np.round(weight / scale), scale)
    if compressed:
        stored = ops.convert(ops.constant(numbers.astype(np.int8)), "f32")
        return ops.multiply(stored, ops.constant(scale.astype("f")))
    ends = [ops.constant((scale * end).astype("f")) for end in (-127, 127)]
    return ops.fake_quantize(ops.constant((numbers * scale).astype("f")), *ends, *ends, 255)


def flipped(numbers, scale):
    numbers[2, 1] = np.where(np.abs(numbers[2, 1]) < 64, numbers[2, 1] + 64, numbers[2, 1] - 128)
    return numbers, scale


def saved(folder, compressed=True, bias=1.0, **changes):
    """The network in int8. bias: factor of the second bias. changes: name of a weight -> what is done to its numbers and scales."""
    arrays, x = drawn(), ops.parameter(SHAPE, np.float32, name="x")
    weights = {name: stepped(arrays[name], compressed, *filter(None, [changes.get(name)])) for name in ("w1", "w2")}
    made = ops.convolution(limited(x, -4, 4), weights["w1"], [1, 1], [1, 1], [1, 1], [1, 1], name="conv/WithoutBiases")
    made = ops.relu(ops.add(made, ops.constant(arrays["b1"].reshape(1, -1, 1, 1)), name="conv"))
    flat = ops.reshape(limited(made, 0, 8), np.array([0, -1]), True)
    made = ops.matmul(flat, weights["w2"], False, True, name="head/WithoutBiases")
    made = ops.add(made, ops.constant(bias * arrays["b2"].reshape(1, -1)), name="head")
    made.output(0).set_names({"y"})
    openvino.save_model(openvino.Model([made], [x], "g"), folder / "int8.xml", compress_to_fp16=False)
    return folder / "int8.xml"


def checked(folder, **wrong):
    done = cli(folder, "check", saved(folder, **wrong), "--against", reference(folder), "--json", folder / "r.json")
    result = json.loads((folder / "r.json").read_text())
    (row,) = (row for row in result["rows"] if row["task"] == "conversion")
    return done, row["error"], result["notes"]


@pytest.mark.parametrize("compressed", [True, False])
def test_right_weights_are_all_compared_and_the_file_is_equal(tmp_path, compressed):
    done, error, notes = checked(tmp_path, compressed=compressed)
    assert (done.code, error["verdict"]) == (0, "EQUAL"), done.out + done.err
    assert not [note for note in notes if "not compared with the reference's one by one" in note]


FAULTS = {
    "one value": ("head", "1 of 8192 values of its weight", {"w2": flipped}),
    "scales of other channels": ("conv", "the scales belong to other channels", {"w1": lambda n, s: (n, s[::-1])}),
    "a larger scale": ("head", "all of its values are × 1.3", {"w2": lambda n, s: (n, 1.3 * s)}),
    "half a bias": ("head", "16 of 16 values of its bias", {"bias": np.float32(0.5)}),
}


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_weight_is_different_and_named(tmp_path, name, compressed):
    layer, says, wrong = FAULTS[name]
    done, error, _ = checked(tmp_path, compressed=compressed, **wrong)
    assert (done.code, error["verdict"]) == (1, "DIFFERENT"), done.out + done.err
    assert f"{layer}/WithoutBiases: " in error["reason"]
    assert says in error["reason"]
