"""Layers of a graph are captured by exposing their values: in one run where rounding depends on what is exposed."""

import numpy as np
import pytest

from xverify.framework import discovery
from xverify.framework.capture import Recorder
from xverify.frameworks.onnx.base import OnExport

onnx = pytest.importorskip("onnx")
LAYERS = OnExport.exposed + 12  # more than ONNX Runtime exposes in one run


def graph():
    """A chain of LAYERS layers, which are called l0, l1, ..."""
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Abs", [f"v{i}"], [f"v{i + 1}"], f"/l{i}/Abs") for i in range(LAYERS)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("v0", f"v{LAYERS}")]
    return helper.make_model(helper.make_graph(nodes, "chain", ends[:1], ends[1:]))


def captured(name, folder):
    """(number of runs, records, outputs). In every run all values are other ones, as after another rounding."""
    adapter = object.__new__(discovery.load(name))
    adapter.onnx, runs = onnx, []

    def values(model, feed, tensors):
        runs.append(set(tensors))
        assert set(tensors) <= {tensor.name for tensor in model.graph.output}
        return [np.full(2, len(runs), np.float32) for _ in tensors]

    adapter.values = values
    recorder = Recorder(folder, np.asarray)
    names = {f"l{i}": f"l{i}" for i in range(LAYERS)}
    outputs = adapter.capture(graph(), (np.zeros(2, np.float32),), names, recorder)
    return len(runs), recorder.records, outputs


def test_openvino_exposes_all_layers_and_the_outputs_in_one_run(tmp_path):
    runs, records, outputs = captured("openvino", tmp_path)
    assert runs == 1
    assert [record.name for record in records] == [f"l{i}" for i in range(LAYERS)]
    assert [float(array[0]) for array in outputs] == [1.0]


def test_onnx_runtime_exposes_some_layers_in_each_run(tmp_path):
    runs, records, outputs = captured("onnxruntime", tmp_path)
    assert runs == 2
    assert len(records) == LAYERS
    assert [float(array[0]) for array in outputs] == [2.0]
