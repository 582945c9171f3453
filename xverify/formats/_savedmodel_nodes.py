"""The operators of a SavedModel's signature, with the values that TensorFlow computes at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.filenodes import FileGraph, FileNode, Traced, settings

if TYPE_CHECKING:
    from xverify.formats.savedmodel import Adapter, Served

_FREE = ("Placeholder", "Const", "NoOp", "Identity")  # what computes nothing
_IDLE = ("T", "dtype", "_output_shapes", "explicit_paddings", "use_cudnn_on_gpu", "_XlaMustCompile")


def traced(framework: Adapter, model: Served, inputs: Mapping[str, Any]) -> Traced:
    """Compute one case, and return the operators of the signature, its functions inlined, with all values."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    tf = framework.tf
    if isinstance(model.function, tf.Graph):
        raise Unsupported("TensorFlow 1's loader does not show the values of operators")
    frozen = convert_variables_to_constants_v2(model.function, lower_control_flow=False)
    own = [each for each in frozen.graph.get_operations() if each.type == "Placeholder"]
    names = {each.outputs[0].name: each.name for each in own}
    feeds = [each.outputs[0] for each in own if each.name in inputs]
    names.update(_results(model, frozen))
    operators = [each for each in frozen.graph.get_operations() if each.type not in _FREE and each.outputs]
    constants = [each.outputs[0] for each in frozen.graph.get_operations() if each.type == "Const"]
    shown = [out for each in operators for out in each.outputs]
    wanted = [
        each for each in (*shown, *constants) if each.dtype.is_floating or each.dtype.is_integer or each.dtype.is_bool
    ]
    found = tf.compat.v1.wrap_function(
        lambda: tf.compat.v1.import_graph_def(frozen.graph.as_graph_def(), name=""), []
    ).prune([each.name for each in feeds], [each.name for each in wanted])
    computed = found(*(inputs[each.op.name] for each in feeds))
    values = {names.get(each.name, each.name): np.array(value.numpy()) for each, value in zip(wanted, computed)}
    values.update({name: np.array(value.numpy()) for name, value in inputs.items()})
    nodes = tuple(_node(each, names) for each in operators)
    return Traced(FileGraph(nodes, tuple(inputs), tuple(each.name for each in model.outputs)), values)


def _results(model: Served, frozen: Any) -> dict[str, str]:
    """Name of a tensor -> the output that it is."""
    outputs = sorted(model.function.structured_outputs)
    return {_behind(tensor).name: name for name, tensor in zip(outputs, frozen.outputs)}


def _behind(tensor: Any) -> Any:
    """The tensor that an identity passes on."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _node(operator: Any, names: Mapping[str, str]) -> FileNode:
    given: Sequence[Any] = [_behind(each) for each in operator.inputs]
    inputs, outputs = (tuple(names.get(each.name, each.name) for each in part) for part in (given, operator.outputs))
    attributes = operator.node_def.attr
    plain = ((name, operator.get_attr(name)) for name in attributes if name not in _IDLE and not name.startswith("_"))
    name = "/" + operator.name.removeprefix("StatefulPartitionedCall/")
    return FileNode(name, operator.type, inputs, outputs, settings(plain))
