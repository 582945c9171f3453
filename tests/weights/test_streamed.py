"""Weights that are drawn, written, hashed and exported one by one are those that are in memory together."""

import numpy as np
import pytest

from xverify.weights import canonical, digest, normal_form, npz
from xverify.workload import probe

SHAPES = {"fc.weight": (7, 11), "fc.bias": (7,), "norm.weight": (5,), "norm.running_var": (5,), "scale": ()}


@pytest.fixture
def small_pieces(monkeypatch):
    for module in (canonical, npz, probe):
        monkeypatch.setattr(module, "PIECE", 3)


def test_weights_that_are_drawn_in_pieces_are_the_same(tmp_path, small_pieces):
    whole = probe.weights(SHAPES, seed=3)
    npz.save_file(probe.Weights(SHAPES, seed=3), tmp_path / "streamed.npz")
    read = npz.load_file(tmp_path / "streamed.npz")
    assert {name: (array.shape, array.tobytes()) for name, array in read.items()} == {
        name: (np.shape(array), np.asarray(array).tobytes()) for name, array in whole.items()
    }


def test_a_streamed_digest_is_that_of_the_arrays(tmp_path, small_pieces):
    whole = probe.weights(SHAPES, seed=3)
    fortran = {"turned": np.asfortranarray(np.arange(6.0, dtype=np.float32).reshape(2, 3))}
    npz.save_file({**whole, **fortran}, tmp_path / "all.npz")
    assert digest(npz.OnDisk(tmp_path / "all.npz")) == digest({**whole, **fortran})
    changed = {**whole, "fc.bias": whole["fc.bias"] + np.float32(1)}
    assert digest(npz.OnDisk(tmp_path / "all.npz")) != digest({**changed, **fortran})


def test_a_mapped_array_stays_when_its_file_is_written_again(tmp_path):
    first, second = (np.full(npz.MAPPED, value, np.float32) for value in (1, 2))
    npz.save_file({"w": first}, tmp_path / "all.npz")
    mapped = npz.OnDisk(tmp_path / "all.npz")["w"]
    npz.save_file({"w": second}, tmp_path / "all.npz")
    assert np.array_equal(mapped, first)
    assert np.array_equal(npz.load_file(tmp_path / "all.npz")["w"], second)


def test_sums_of_streamed_weights_are_those_of_the_arrays(tmp_path):
    whole = probe.weights({"lstm.bias_ih": (4,), "lstm.bias_hh": (4,), "lstm.weight": (4, 2)}, seed=0)
    npz.save_file(whole, tmp_path / "all.npz")
    fused = {"lstm.bias": ("lstm.bias_ih", "lstm.bias_hh")}
    assert digest(normal_form(npz.OnDisk(tmp_path / "all.npz"), fused)) == digest(normal_form(whole, fused))


def test_an_onnx_graph_refers_to_the_file_of_the_weights(tmp_path):
    onnx = pytest.importorskip("onnx")
    from xverify.weights import onnx as onnx_weights

    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float32)}
    npz.save_file(arrays, tmp_path / "weights.npz")
    made = onnx.helper
    inputs = [made.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [1, 2]), ("w", [2, 3]))]
    node = [made.make_node("MatMul", ["x", "w"], ["m"]), made.make_node("Add", ["m", "b"], ["y"])]
    held = [onnx.numpy_helper.from_array(np.zeros(3, np.float32), "b")]
    outputs = [made.make_tensor_value_info("y", 1, [1, 3])]
    model = made.make_model(made.make_graph(node, "g", inputs, outputs, held))
    on_disk = npz.OnDisk(tmp_path / "weights.npz")
    assert onnx_weights.shapes(model, arrays) == {"w": (2, 3), "b": (3,)}
    onnx_weights.refer_to(model, {name: on_disk.place(name) for name in on_disk})
    onnx.save(model, tmp_path / "model.onnx")
    read = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    assert [value.name for value in read.graph.input] == ["x"]
    assert digest(onnx_weights.OfModel(read, tmp_path)) == digest(arrays)
    other = {**arrays, "b": np.full(3, 2.0, np.float32)}  # what differs becomes part of the model, and the file stays
    onnx_weights.to_model(read, other, tmp_path)
    assert digest(onnx_weights.OfModel(read, tmp_path)) == digest(other)
    assert digest(npz.OnDisk(tmp_path / "weights.npz")) == digest(arrays)
