"""A runtime of ONNX files with one wrong kernel, for suites/kernels.py: ONNX Runtime on a graph that was changed.

The file that WRONG_KERNEL names says which: {"fault": ..., "where": "everywhere" or "fused", "node": ...}.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from xverify.formats.onnx import Adapter as Right
from xverify.formats.onnx import OnnxModel


class Adapter(Right):
    name = "onnx-wrong"
    runtime = "wrong-kernels"
    on_request = True

    def start(self, model: OnnxModel, level: str, graph: bytes | None = None) -> Any:
        import onnx

        asked = json.loads(Path(os.environ["WRONG_KERNEL"]).read_text())
        proto = onnx.load_from_string(graph) if graph is not None else onnx.load(model.path)
        if asked["where"] == "everywhere" or level == "ORT_ENABLE_ALL":
            node = next((each for each in proto.graph.node if each.name == asked["node"]), None)
            if node is not None:
                Change(proto.graph, node).make(asked["fault"])
        return super().start(model, level, proto.SerializeToString())


class Change:
    """A change of one node of a graph that makes its kernel a wrong one."""

    def __init__(self, graph: Any, node: Any) -> None:
        self.graph, self.node = graph, node
        self.constants = {tensor.name: tensor for tensor in graph.initializer}

    def make(self, fault: str) -> None:
        """Change the node. fault: one of the keys of FAULTS."""
        what, _, factor = fault.partition(" x ")
        if what == "dequantises":
            self._constant(1, lambda scale: scale * np.float32(factor))
        elif what == "rescales":  # the scale of the result
            self._constant(6, lambda scale: scale / np.float32(factor))
        elif what == "zero point + 1":
            self._constant(7 if self.node.op_type.startswith("QLinear") else 2, lambda zero: zero + zero.dtype.type(1))
        elif what == "rounds down":
            half = self._add(self._value(1) / np.float32(2))
            self._before("Sub", half)
        elif what == "drops the zero point":
            self.node.input[2] = ""
        elif what == "drops the bias":
            del self.node.input[8 if self.node.op_type == "QLinearConv" else 2]
        elif what == "result":
            self._behind("Mul", self._add(np.float32(factor)))

    def _value(self, place: int) -> Any:
        from onnx import numpy_helper

        return numpy_helper.to_array(self.constants[self.node.input[place]])

    def _add(self, array: Any) -> str:
        from onnx import numpy_helper

        name = f"planted-{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _constant(self, place: int, change: Any) -> None:
        self.node.input[place] = self._add(change(self._value(place)))

    def _before(self, op: str, other: str) -> None:
        """Put an operator before the first input of the node."""
        from onnx import helper

        made = helper.make_node(op, [self.node.input[0], other], ["planted"], "planted")
        self.node.input[0] = "planted"
        self.graph.node.insert(list(self.graph.node).index(self.node), made)

    def _behind(self, op: str, other: str) -> None:
        """Put an operator behind the node, whose result keeps its name."""
        from onnx import helper

        name, place = self.node.output[0], list(self.graph.node).index(self.node)
        self.node.output[0] = "planted"
        self.graph.node.insert(place + 1, helper.make_node(op, ["planted", other], [name], "planted"))
