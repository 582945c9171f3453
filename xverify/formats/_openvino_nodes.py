"""The nodes of a graph of OpenVINO, with the values that it computes at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from xverify.framework.adapter import Array
from xverify.framework.filenodes import FileGraph, FileNode, Traced, settings

if TYPE_CHECKING:
    from xverify.formats._openvino import OnOpenVINO

# Compute node by node in float32, without moving scales from one node to another.
PLAIN = {"INFERENCE_PRECISION_HINT": "f32", "LP_TRANSFORMS_MODE": False}
FREE = ("Parameter", "Result", "Constant")  # what computes nothing


@dataclass(frozen=True)
class Names:
    """The names of values: those of the signature for what the file is given and returns. known: (node, output) -> name."""

    known: Mapping[tuple[str, int], str]

    @classmethod
    def of_model(cls, model: Any) -> Names:
        """The names of the values of an opened model, and of its copies."""
        known = {(port.get_node().get_friendly_name(), 0): cls.result(port) for port in model.inputs}
        for port in model.outputs:
            source = port.get_node().input_value(0)
            known[source.get_node().get_friendly_name(), source.get_index()] = cls.result(port)
        return cls(known)

    @staticmethod
    def result(port: Any) -> str:
        """The name of an input or output of the model."""
        names = sorted(port.get_names())
        return names[0] if names else str(port.node.get_friendly_name())

    def of(self, port: Any) -> str:
        """The name of the value at an output of a node."""
        own, place = port.get_node().get_friendly_name(), port.get_index()
        return self.known.get((own, place), own if not place else f"{own}.{place}")


def traced(framework: OnOpenVINO, model: Any, inputs: Mapping[str, Any]) -> Traced:
    """Compute one case, and return all nodes with all values."""
    names, nodes = Names.of_model(model), []
    values: dict[str, Array] = {}
    for node in model.get_ordered_ops():
        kind, own = node.get_type_name(), node.get_friendly_name()
        if kind == "Constant":
            values[own] = np.array(node.data)
        if kind not in FREE:
            given, outputs = (tuple(map(names.of, side)) for side in (node.input_values(), node.outputs()))
            nodes.append(FileNode(own, kind, given, outputs, settings(node.get_attributes().items())))
    values.update(shown_values(framework, model, inputs))
    values.update({name: framework.to_numpy(value, None) for name, value in inputs.items()})
    results = tuple(map(names.result, model.outputs))
    quantised = any(node.kind == "FakeQuantize" for node in nodes)
    return Traced(FileGraph(tuple(nodes), tuple(inputs), results, quantised), values)


def shown_values(framework: OnOpenVINO, model: Any, inputs: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Compute one case: the name of every value that a node makes, and its array."""
    names, copy = Names.of_model(model), model.clone()
    found = [names.result(port) for port in copy.outputs]
    ports = [
        port
        for node in copy.get_ordered_ops()
        if node.get_type_name() not in FREE
        for port in node.outputs()
        if names.of(port) not in found and not port.get_element_type().is_dynamic()
    ]
    copy.add_outputs(ports)
    request = framework.core.compile_model(copy, "CPU", PLAIN).create_infer_request()
    request.infer([inputs[names.result(port)] for port in model.inputs])
    for place, name in enumerate((*found, *map(names.of, ports))):
        yield name, np.array(request.get_output_tensor(place).data)
