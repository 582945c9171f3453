"""Writes the graph of a file of another format as an ONNX graph of the same meaning, which is evaluated in float64 as those are.

Every operator becomes one node or a few. An operator without a translation becomes a node of a domain that nobody implements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 21  # the first operator set that quantises to 16 bits


class Untranslated(Exception):
    """There is no translation of an operator, or of one with these settings or inputs."""


class GraphWriter:
    """Collects the nodes and constants of an ONNX graph."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.arrays: dict[str, Any] = {}
        self.place = ""  # name of the operator that is being translated
        self.count = 0

    def fresh(self) -> str:
        """A name for a value between two nodes."""
        self.count += 1
        return f"{self.place}/{self.count}"

    def array(self, values: Any, dtype: Any = np.int64, name: str = "") -> str:
        """A new constant. Returns its name. name: "" for a new one."""
        name = name or self.fresh()
        self.arrays[name] = numpy_helper.from_array(np.asarray(values, dtype, order="C"), name)
        return name

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node of ONNX. Returns the name of its output, or of its first one."""
        names = [self.fresh() for _ in range(outputs)]
        kept = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=names[0], **kept))
        return names[0]

    def turned(self, value: str, *order: int) -> str:
        """A value with its axes in another order."""
        if value not in self.arrays:
            return self.add("Transpose", value, perm=list(order))
        name = f"{value} {list(order)}"
        if name not in self.arrays:
            self.array(numpy_helper.to_array(self.arrays[value]).transpose(order), None, name)
        return name

    def shaped(self, value: str, shape: Sequence[int]) -> str:
        """A value in another shape."""
        return self.add("Reshape", value, self.array(shape), allowzero=1 if 0 in shape else None)

    def rename(self, value: str, name: str, begin: int = 0) -> Any:
        """Give a value that no other node takes another name. Returns its node, of those from ``begin`` on; None without one."""
        for node in self.nodes[begin:]:
            if value in node.output:
                node.output[list(node.output).index(value)] = name
                return node
        return None

    def named(self, begin: int, operator: str, value: str, name: str) -> None:
        """Give the value of an output of an operator its name, and its own name to the node that makes it."""
        node = self.rename(value, name, begin)
        if node is None:
            self.nodes.append(helper.make_node("Identity", [value], [name], name=operator))
        else:
            node.name = operator

    def model(self, inputs: Sequence[Any], outputs: Sequence[Any], domain: str) -> Any:
        """The model of all nodes. inputs, outputs: ``ValueInfoProto``. domain: of operators without a translation."""
        used = {name for node in self.nodes for name in node.input} | {each.name for each in outputs}
        arrays = [array for name, array in self.arrays.items() if name in used]
        graph = helper.make_graph(self.nodes, "main", list(inputs), list(outputs), arrays)
        imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(domain, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)


def save(model: Any, path: Any) -> None:
    """Write a model into a file, with large weights beside it."""
    large = model.ByteSize() > 2**30
    onnx.save(model, path, save_as_external_data=large, location=f"{path.name}.data" if large else None)
