"""The graph of a file of any format, with the values that its runtime computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....framework.filenodes import FileGraph
from ..model import Body, Node
from .divergence import Trace
from .sketch import sketch

ROUNDED = 1e-5  # relative difference that values computed in float32 may have
SHAPES = ("shape", "size", "shape_of", "shapeof")  # operators whose result depends on the shape of an input alone


class TracedGraph(Body):
    """The graph of a file that is no ONNX file."""

    def __init__(self, traced: FileGraph, constants: Mapping[str, Any]) -> None:
        self.name, self.constants = "", dict(constants)
        self.defaulted, self.inputs, self.outputs = (), traced.inputs, traced.outputs
        self.nodes = tuple(
            Node(
                each.name, each.kind, "", 0, each.inputs, each.outputs, each.settings, None,
                uses=frozenset(each.inputs) - {""},
            )
            for each in traced.nodes
        )  # fmt: skip
        self.freed = ()


def of_values(traced: FileGraph, values: Mapping[str, Any], turn: bool = False) -> Trace:
    """The values of a file. values: name -> array; each is asked for once. turn: see ``sketch``."""
    made = {*traced.inputs, *(name for node in traced.nodes for name in node.outputs)}
    constants = {name: values[name] for name in values if name not in made}
    graph = TracedGraph(traced, constants)
    trace = Trace(graph, quantised=traced.quantised, through=True)
    trace.data.update(traced.inputs)
    for node in graph.nodes:
        if node.op.lower().rpartition("::")[2] not in SHAPES and node.uses & trace.data:
            trace.data.update(node.outputs)
    narrow = False
    for name in values:
        array = constants[name] if name in constants else np.asarray(values[name])
        narrow = narrow or array.dtype in (np.float32, np.float16)
        trace.sketches[name] = sketch(array, turn)
    trace.least = ROUNDED if narrow else trace.least
    return trace
