"""An ONNX file is read without copies of its large weights, and has the same values as when onnx reads it."""

import numpy as np
import onnx
import pytest
import torch

from xverify.formats._onnx_parts import LARGE, load
from xverify.replay.graph.model import Graph

DTYPES = {
    "float32": onnx.TensorProto.FLOAT,
    "float16": onnx.TensorProto.FLOAT16,
    "float64": onnx.TensorProto.DOUBLE,
    "int64": onnx.TensorProto.INT64,
    "int32": onnx.TensorProto.INT32,
    "int8": onnx.TensorProto.INT8,
    "uint8": onnx.TensorProto.UINT8,
}


def weights(dtype, size=LARGE + 4):
    return np.random.default_rng(0).integers(0, 100, (size // 4, 4)).astype(dtype)


def saved(path, tensors, external=False):
    sides = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"])]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "graph", sides[:1], sides[1:], tensors))
    onnx.save(model, path, save_as_external_data=external, location="weights.bin")
    return path


def test_every_initializer_has_the_values_that_onnx_reads(tmp_path):
    large = [onnx.numpy_helper.from_array(weights(name), f"x{name}"[place % 2 :]) for place, name in enumerate(DTYPES)]
    numbers = weights("float32").reshape(-1)
    others = [
        onnx.helper.make_tensor("as numbers", onnx.TensorProto.FLOAT, [len(numbers)], numbers),
        onnx.helper.make_tensor("bfloat16", onnx.TensorProto.BFLOAT16, [len(numbers)], numbers),
        onnx.numpy_helper.from_array(np.float32(3), "small"),
        onnx.numpy_helper.from_array(np.zeros((0, 3), np.float32), "empty"),
    ]
    path = saved(tmp_path / "m.onnx", [others[0], *large, *others[1:]])
    model, values = load(onnx, path)
    found, right = Graph(model, values=values).constants, Graph(onnx.load(path)).constants
    assert list(found) == list(right)
    assert len(values) == len(DTYPES)
    assert model.ByteSize() < path.stat().st_size - len(DTYPES) * LARGE
    for name, array in right.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert np.array_equal(found[name], array)


def test_external_data_stays_where_it_is(tmp_path):
    array = weights("float32")
    path = saved(tmp_path / "m.onnx", [onnx.numpy_helper.from_array(array, "w")], external=True)
    model, values = load(onnx, path)
    assert values == {}
    assert np.array_equal(Graph(model, str(tmp_path), values).constants["w"], array)


def test_a_weight_whose_bytes_are_not_as_many_as_its_shape_says_is_not_taken(tmp_path):
    tensor = onnx.numpy_helper.from_array(weights("float32"), "w")
    tensor.dims[0] += 1
    model, values = load(onnx, saved(tmp_path / "m.onnx", [tensor]))
    assert values == {}
    with pytest.raises(ValueError, match="reshape"):
        Graph(model, values=values)


def test_values_can_be_computed_in_place_without_a_change_of_the_file(tmp_path):
    path = saved(tmp_path / "m.onnx", [onnx.numpy_helper.from_array(weights("float32"), "w")])
    before = path.read_bytes()
    _, values = load(onnx, path)
    torch.from_numpy(values["w"]).zero_()
    assert path.read_bytes() == before
