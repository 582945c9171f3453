"""Every format shows the weights that a file of it stores, whatever it calls them."""

import numpy as np
import pytest
from helpers.modelfiles import FILES, Opened, file

from xverify.messages.files import ReadWeights
from xverify.weights import npz
from xverify.weights.relations import relate
from xverify.weights.stored import Stored


def weights():
    random = np.random.default_rng(0)
    return {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in (("W", (4, 6)), ("b", (6,)), ("V", (6, 3)))
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_shows_its_weights(tmp_path, name):
    with Opened(file(*FILES[name]), tmp_path / "worker", "openvino" if name == "onnx-openvino" else "") as opened:
        opened.build()
        reply = opened.worker.ask(ReadWeights(str(tmp_path / "weights.npz")))
    found = Stored(npz.load_file(tmp_path / "weights.npz"), reply.norms, reply.quantised, reply.places)
    relations = {each.other: each for each in relate(found, Stored(weights())) if each.other}
    assert {name: each.kind for name, each in relations.items()} == {"W": "same", "b": "same", "V": "same"}


@pytest.mark.slow
def test_weights_diff_reads_a_model_file_of_torch(xverify, tmp_path):
    done = xverify("weights", "diff", file("TORCH", "model.pt2"), file("ONNX", "model.onnx"))
    assert done.code in (0, 1), done.out + done.err
    assert "W:" not in done.out  # it is the same under the same name
    changed = {**weights(), "W": weights()["W"] * 2}
    np.savez(tmp_path / "changed.npz", **changed)
    done = xverify("weights", "diff", file("TORCH", "model.pt2"), tmp_path / "changed.npz")
    assert done.code == 1
    assert "W is multiplied by 0.5" in done.out


@pytest.mark.parametrize(("operator", "axis"), [("MatMulInteger", 1), ("ConvInteger", 0)])
def test_the_scales_of_a_square_weight_belong_to_the_output_channels_of_its_operator(operator, axis):
    """Its shape does not tell: as many inputs as outputs."""
    helper = pytest.importorskip("onnx").helper
    from xverify.weights import onnx_graph

    shape = (6, 6) if operator == "MatMulInteger" else (6, 6, 3, 3)
    scales = np.geomspace(0.01, 1.0, 6).astype(np.float32)
    along = [-1 if each == axis else 1 for each in range(len(shape))]
    whole = np.random.default_rng(0).integers(-127, 128, shape).astype(np.int8)
    constants = {"w_quantized": whole, "w_scale": scales, "w_zero_point": np.zeros(6, np.int8)}
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "w_quantized", "zero", "w_zero_point"], ["y"])],
        "graph",
        [],
        [],
        [pytest.importorskip("onnx").numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    found = onnx_graph.stored(helper.make_model(graph)).arrays["w_quantized"]
    np.testing.assert_array_equal(found, whole * scales.reshape(along))
