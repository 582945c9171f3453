"""Changes a graph as the kernels of a wrong runtime compute it.

The file in PLANTED_FAULT describes the fault. node: the name of the node that is computed wrong. attributes: they replace its own.
inputs: place -> (type, values), which replace its constants. result: (operator, type, values), by which its result is changed.
after: the node is wrong where it follows this one and nothing between them is shown, in a runtime that joins nodes.
"""

import importlib
import json
import os
import sys
from pathlib import Path

import numpy as np


def real(name):
    """The real module, in whose place another one of this folder is being imported."""
    here, kept = os.path.dirname(os.path.abspath(__file__)), list(sys.path)
    sys.path[:] = [each for each in kept if os.path.abspath(each) != here]
    del sys.modules[name]
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = kept


def plant(model, joins):
    """Change the graph as the wrong kernel computes it. joins: whether the session joins nodes."""
    from onnx import helper, numpy_helper

    fault = json.loads(Path(os.environ["PLANTED_FAULT"]).read_text())
    graph, nodes = model.graph, {node.name: node for node in model.graph.node}
    node, before = nodes.get(fault["node"]), nodes.get(fault.get("after"))
    if node is None or ("after" in fault and not (joins and follows(graph, node, before))):
        return
    for name, value in fault.get("attributes", {}).items():
        for old in [each for each in node.attribute if each.name == name]:
            node.attribute.remove(old)
        node.attribute.append(helper.make_attribute(name, value))
    for place, (dtype, values) in fault.get("inputs", {}).items():
        node.input[int(place)] = f"planted {place}"
        graph.initializer.append(numpy_helper.from_array(np.array(values, dtype), f"planted {place}"))
    if "result" in fault:
        op, dtype, values = fault["result"]
        graph.initializer.append(numpy_helper.from_array(np.array(values, dtype), "planted"))
        output, node.output[0] = node.output[0], "before the planted change"
        changed = helper.make_node(op, [node.output[0], "planted"], [output], "planted change")
        graph.node.insert(list(graph.node).index(node) + 1, changed)


def follows(graph, node, before):
    """Whether a node is the only one that takes what another one makes."""
    if before is None or before.output[0] not in node.input:
        return False
    shown = before.output[0] in {value.name for value in graph.output}
    return not shown and sum(before.output[0] in each.input for each in graph.node) == 1
