"""Changes a graph as the kernels of a wrong runtime compute it.

The file in PLANTED_FAULT describes the fault. node: the name of the node that is computed wrong. attributes: they replace its own.
inputs: place -> (type, values), which replace its constants. result: (operator, type, values), by which its result is changed.
saturates: a MatMulInteger that adds two products in 16 bits, as processors without VNNI do.
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
    if fault.get("saturates"):
        saturate(graph, node)
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


def saturate(graph, node):
    """Compute a MatMulInteger of uint8 and constant int8 as a kernel that adds two products in 16 bits."""
    from onnx import helper, numpy_helper

    weight = next(numpy_helper.to_array(each) for each in graph.initializer if each.name == node.input[1]).astype("f")
    nodes, sums = [helper.make_node("Cast", [node.input[0]], ["planted a"], to=1)], []
    for k in range(0, len(weight), 2):
        pair = np.zeros_like(weight)
        pair[k : k + 2] = weight[k : k + 2]
        graph.initializer.append(numpy_helper.from_array(pair, f"planted {k}"))
        nodes.append(helper.make_node("MatMul", ["planted a", f"planted {k}"], [f"planted product {k}"]))
        nodes.append(
            helper.make_node("Clip", [f"planted product {k}", "planted low", "planted high"], [f"planted sum {k}"])
        )
        sums.append(f"planted sum {k}")
    for name, array in {"low": np.float32(-(2**15)), "high": np.float32(2**15 - 1), "columns": weight.sum(0)}.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), f"planted {name}"))
    nodes += [
        helper.make_node("Sum", sums, ["planted whole"]), helper.make_node("Cast", [node.input[2]], ["planted zero"], to=1),
        helper.make_node("Mul", ["planted zero", "planted columns"], ["planted offset"]),
        helper.make_node("Sub", ["planted whole", "planted offset"], ["planted result"]),
        helper.make_node("Cast", ["planted result"], [node.output[0]], to=6),
    ]  # fmt: skip
    place = list(graph.node).index(node)
    graph.node.remove(node)
    for each in reversed(nodes):
        graph.node.insert(place, each)


def follows(graph, node, before):
    """Whether a node is the only one that takes what another one makes."""
    if before is None or before.output[0] not in node.input:
        return False
    shown = before.output[0] in {value.name for value in graph.output}
    return not shown and sum(before.output[0] in each.input for each in graph.node) == 1
