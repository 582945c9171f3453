"""The nodes of a graph of OpenVINO, with the values that it computes at them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from xverify.framework.adapter import Array
from xverify.framework.filenodes import FileGraph, FileNode, Traced, settings

if TYPE_CHECKING:
    from xverify.formats._openvino import OnOpenVINO

_FREE = ("Parameter", "Result", "Constant")  # what computes nothing


def traced(framework: OnOpenVINO, model: Any, inputs: Mapping[str, Any], name_of: Callable[[Any], str]) -> Traced:
    """Compute one case, and return all nodes with all values. name_of: the name of an input or output in the signature."""
    places = {port.get_node().get_friendly_name(): name_of(port) for port in model.inputs}
    names: dict[tuple[str, int], str] = {(own, 0): name for own, name in places.items()}
    for port in model.outputs:
        source = port.get_node().input_value(0)
        names[source.get_node().get_friendly_name(), source.get_index()] = name_of(port)
    results = tuple(name_of(port) for port in model.outputs)
    copy = model.clone()
    nodes: list[FileNode] = []
    values: dict[str, Array] = {}
    shown: list[tuple[str, Any]] = []
    for node in copy.get_ordered_ops():
        kind, own = node.get_type_name(), node.get_friendly_name()
        if kind == "Constant":
            values[own] = np.array(node.data)
        if kind in _FREE:
            continue
        outputs = tuple(
            names.get((own, port), own if not port else f"{own}.{port}") for port in range(node.get_output_size())
        )
        given = tuple(_given(names, each) for each in node.input_values())
        nodes.append(FileNode(own, kind, given, outputs, settings(node.get_attributes().items())))
        shown += zip(outputs, node.outputs())
    shown = [(name, port) for name, port in shown if name not in results and not port.get_element_type().is_dynamic()]
    copy.add_outputs([port for _, port in shown])
    request = framework.core.compile_model(copy, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    request.infer([inputs[name_of(port)] for port in model.inputs])
    for place, name in enumerate((*results, *(name for name, _ in shown))):
        values[name] = np.array(request.get_output_tensor(place).data)
    values.update({name: framework.to_numpy(value, None) for name, value in inputs.items()})
    quantised = any(node.kind == "FakeQuantize" for node in nodes)
    return Traced(FileGraph(tuple(nodes), tuple(inputs), results, quantised), values)


def _given(names: Mapping[tuple[str, int], str], port: Any) -> str:
    own, place = port.get_node().get_friendly_name(), port.get_index()
    return names.get((own, place), own if not place else f"{own}.{place}")
