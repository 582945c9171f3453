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
