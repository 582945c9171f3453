"""The noise of a graph that treats all items alike, measured on one of them."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from xverify.replay.graph.judge.itemwise import noise_of_one_item  # noqa: E402
from xverify.replay.graph.judge.noise import noise  # noqa: E402
from xverify.replay.graph.model import Graph  # noqa: E402

RANDOM = np.random.default_rng(0)
WEIGHT = (0.1 * RANDOM.standard_normal((64, 300))).astype(np.float32)
INPUT = RANDOM.standard_normal((6, 64)).astype(np.float32)
node = helper.make_node
PRODUCT = node("MatMul", ["x", "w"], ["z"])


def model(*nodes, **more):
    """A graph from x, six items of 64 values, to y."""
    constants = {"w": WEIGHT, "shape": np.array([6, -1]), "five": np.array([5]), **more}
    made = helper.make_graph(
        [PRODUCT, *nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def of_one_item(*nodes):
    return noise_of_one_item(Graph(model(*nodes)), {"x": INPUT}, 0, 2, ())


def test_all_items_have_the_noise_that_was_measured_on_the_first():
    tanh = node("Tanh", ["z"], ["y"])
    found, whole = of_one_item(tanh)["y"], noise(Graph(model(tanh)), {"x": INPUT}, 0, 2)["y"]
    assert np.array_equal(found.exact, whole.exact)
    for mine, other in zip(found.noise, whole.noise):
        assert 0.5 < np.sqrt(np.mean(mine**2) / np.mean(other**2)) < 2


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([node("Softmax", ["z"], ["y"], axis=0)], id="a softmax over the items"),
        pytest.param([node("Reshape", ["z", "shape"], ["y"])], id="a shape with the number of items"),
        pytest.param([node("TopK", ["z", "five"], ["y", "i"])], id="a decision"),
        pytest.param([node("ReduceMean", ["z"], ["y"], axes=[1])], id="too few values"),
    ],
)
def test_a_graph_that_one_item_does_not_stand_for_is_measured_whole(nodes):
    assert of_one_item(*nodes) is None


@pytest.mark.slow
@pytest.mark.parametrize("item", [0, 4])
def test_a_fault_in_any_item_is_found(xverify, tmp_path, item):
    """The noise of an item comes from the first one; its outputs are compared by themselves."""
    right, wrong = np.ones((6, 1), np.float32), np.ones((6, 1), np.float32)
    wrong[item] += 1e-4
    for name, factor in (("right", right), ("wrong", wrong)):
        nodes = node("Tanh", ["z"], ["t"]), node("Mul", ["t", "factor"], ["y"])
        onnx.save(model(*nodes, factor=factor), tmp_path / f"{name}.onnx")
    plain = model(node("Tanh", ["z"], ["y"]))
    onnx.save(plain, tmp_path / "plain.onnx")
    assert xverify("check", tmp_path / "right.onnx", "--against", tmp_path / "plain.onnx").code == 0
    done = xverify("check", tmp_path / "wrong.onnx", "--against", tmp_path / "plain.onnx")
    assert done.code == 1, done.out + done.err
