"""The noise of graphs that onnx's own test data and files of torchvision showed to be wrong, and files in no order."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
from helpers.graphresiduals import floor, rho  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from xverify.replay.graph.evaluation import evaluate  # noqa: E402
from xverify.replay.graph.judge.noise import noise  # noqa: E402
from xverify.replay.graph.judge.replay import replay  # noqa: E402
from xverify.replay.graph.model import Graph  # noqa: E402

RANDOM = np.random.default_rng(0)


def graph(nodes, shapes, out, arrays=None, kind=TensorProto.FLOAT):
    """shapes: input -> shape. out: the name of the output."""
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    output = helper.make_tensor_value_info(out, TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(array, name) for name, array in (arrays or {}).items()]
    made = helper.make_graph(nodes, "g", inputs, [output], weights)
    return Graph(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def test_noise_through_many_quantised_layers_stays_that_of_quantisation():
    """A perturbation counts tenfold beside a tie. Tenfold in every one of 14 layers would hide any fault."""
    nodes, arrays = [], {}
    for layer in range(14):
        x = "x" if layer == 0 else f"y{layer - 1}"
        arrays[f"w{layer}"] = RANDOM.integers(-127, 127, (16, 16)).astype(np.int8)
        arrays[f"s{layer}"] = np.array(0.004, np.float32)
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [x], [f"q{layer}", f"qs{layer}", f"qz{layer}"]),
            helper.make_node("MatMulInteger", [f"q{layer}", f"w{layer}", f"qz{layer}"], [f"i{layer}"]),
            helper.make_node("Cast", [f"i{layer}"], [f"f{layer}"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"f{layer}", f"qs{layer}"], [f"m{layer}"]),
            helper.make_node("Mul", [f"m{layer}", f"s{layer}"], [f"y{layer}"]),
        ]
    deep = graph(nodes, {"x": [8, 16]}, "y13", arrays)
    found = noise(deep, {"x": RANDOM.standard_normal((8, 16)).astype(np.float32)}, samples=2)["y13"]
    assert floor(found) < 0.3 * np.sqrt(np.mean(np.square(found.exact)))


def test_a_value_that_follows_from_a_whole_number_is_rounded():
    window = graph([helper.make_node("HannWindow", ["n"], ["y"])], {"n": []}, "y", kind=TensorProto.INT64)
    found = noise(window, {"n": np.array(50)})["y"]
    assert 0 < floor(found) < 1e-7
    assert rho(found, found.exact.astype(np.float32)) < 3


def test_the_rounding_of_a_long_sum_of_one_sign_is_expected():
    """Each of 100,000 additions rounds; perturbed terms alone would nearly cancel out."""
    x = RANDOM.random((100_000, 1)).astype(np.float32)
    total = graph([helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": list(x.shape)}, "y")
    one_by_one = np.cumsum(x, dtype=np.float32)[-1]
    assert rho(noise(total, {"x": x})["y"], one_by_one) < 3
    assert rho(noise(total, {"x": x})["y"], one_by_one * 1.001) > 10
    scores = np.log(RANDOM.random((20_000, 5)).astype(np.float32))
    ids = RANDOM.integers(0, 5, 20_000)
    loss = helper.make_node("NegativeLogLikelihoodLoss", ["x", "t"], ["y"], reduction="sum")
    losses = graph([loss], {"x": [20_000, 5]}, "y", {"t": ids})
    summed = -np.cumsum(scores[np.arange(20_000), ids], dtype=np.float32)[-1]
    (finding,) = replay(losses, {"x": scores}, {"y": np.asarray(summed)}).findings
    assert finding.verdict == "EQUAL"


def test_nodes_in_no_order_are_computed_in_one():
    nodes = [
        helper.make_node("Add", ["b", "b"], ["y"]),
        helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("Neg", ["x"], ["a"]),
    ]
    for arranged in (nodes, nodes[::-1], [nodes[1], nodes[0], nodes[2]]):
        found = evaluate(graph(arranged, {"x": [2]}, "y"), {"x": np.array([1.0, 3.0], np.float32)})
        np.testing.assert_array_equal(found["y"], [2.0, 18.0])
    with pytest.raises(KeyError, match="before it is computed"):  # a circle has no order
        evaluate(
            graph([nodes[0], helper.make_node("Neg", ["y"], ["b"])], {"x": [2]}, "y"), {"x": np.zeros(2, np.float32)}
        )


def test_an_interpolation_of_whole_numbers_rounds_and_their_sum_does_not():
    """The weights of an interpolation are computed in float32; sums of small whole numbers are exact in any order."""
    x = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8)
    how = {"mode": "cubic", "coordinate_transformation_mode": "align_corners"}
    resize = helper.make_node("Resize", ["x", "", "scales"], ["y"], **how)
    resized = graph([resize], {"x": [1, 1, 8, 8]}, "y", {"scales": np.float32([1, 1, 2.5, 2.5])})
    summed = graph([helper.make_node("ReduceSum", ["x"], ["y"])], {"x": [1, 1, 8, 8]}, "y")
    shares = []
    for each in (resized, summed):
        found = noise(each, {"x": x}, own=False)["y"]
        shares.append(floor(found) / np.sqrt(np.mean(np.square(found.exact))) / 2**-24)
    assert shares[0] > 1 > shares[1]
