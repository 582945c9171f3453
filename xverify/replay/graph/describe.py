"""What an ONNX graph tells about itself: the ids that its tables hold, and the precision in which it computes."""

from __future__ import annotations

from collections import Counter

import numpy as np

from .model import Graph
from .values import BFLOAT16

# Operators through which ids pass unchanged on their way to a table.
PASSES = frozenset(
    {"Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Transpose", "Slice", "Concat", "Expand"}
)
INTEGER_KERNELS = frozenset({"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"})


def vocabulary(graph: Graph) -> dict[str, int]:
    """Input -> number of rows of the smallest table that it selects from."""
    origins = {name: {name} for name in graph.inputs}
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "Gather" and len(node.inputs) == 2 and node.inputs[0] in graph.constants:
            rows = int(graph.constants[node.inputs[0]].shape[node.get("axis", 0)])
            for name in origins.get(node.inputs[1], ()):
                found[name] = min(rows, found.get(name, rows))
        if node.op in PASSES:
            joined = set().union(*(origins.get(name, set()) for name in node.inputs))
            origins.update({name: joined for name in node.outputs if joined})
    return found


def precision(graph: Graph) -> str:
    """The precision in which a graph computes, in words: that of its weights, and of its integer arithmetic if it has any."""
    sizes: Counter[str] = Counter()
    for array in graph.constants.values():
        if array.dtype == BFLOAT16 or array.dtype.kind == "f":
            sizes["bfloat16" if array.dtype == BFLOAT16 else array.dtype.name] += array.size
        elif array.dtype in (np.int8, np.uint8):
            sizes[array.dtype.name] += array.size
    operators = Counter(node.op for node in graph.nodes)
    whole = sum(size for name, size in sizes.items() if "int" in name)
    if not (operators.keys() & {*INTEGER_KERNELS, "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}):
        floats = {name: size for name, size in sizes.items() if "float" in name}
        return max(floats, key=lambda name: floats[name], default="float32")
    kind = max((name for name in sizes if "int" in name), key=lambda name: sizes[name], default="int8")
    activations = "dynamic" if operators["DynamicQuantizeLinear"] else "static"
    if not (operators["QuantizeLinear"] or operators["DynamicQuantizeLinear"]):
        return f"{kind} weights" if whole else "float32"
    scales = [
        graph.constants[name]
        for node in graph.nodes
        for name in node.inputs
        if name in graph.constants and "scale" in name
    ]
    channels = "per channel" if any(scale.size > 1 for scale in scales) else "per tensor"
    return f"{kind} ({activations}, {channels})"
