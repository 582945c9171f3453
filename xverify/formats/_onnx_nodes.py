"""The values of all nodes of an ONNX file, as ONNX Runtime computes them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xverify.formats._bfloat16 import Bits
from xverify.formats._onnx_parts import Parts
from xverify.framework.structures import Natives

if TYPE_CHECKING:
    from xverify.formats.onnx import Adapter, OnnxModel

EXPOSED = 256  # values that one session exposes; more need memory, fewer need more sessions
OF_NO_TENSORS = ("SplitToSequence", "If", "Loop", "Scan")  # operators whose results may be no tensors


def node_values(
    framework: Adapter, model: OnnxModel, inputs: Mapping[str, Any], folder: Path, path: Path
) -> dict[str, str]:
    """Compute one case without optimisations, and write the value of every node: name of a value -> file name in the folder.

    A long graph is computed in parts, each from the values that the parts before it gave. So a node is given the values that were
    written. In a session that exposes other values it may be given others: ONNX Runtime rounds to float16 only what is exposed.

    inputs: name -> native input. path: the ONNX file to compute, with the external data of the model.
    Sequences and optional values are left out. Needs the package onnx.
    """
    import onnx

    from xverify.formats.onnx import grouped

    inputs = grouped(framework.session(model, "ORT_ENABLE_ALL"), inputs)
    file = Parts.read(onnx, path)
    graph = file.model
    tensors = set(_tensors(graph))
    files: dict[str, str] = {}
    known, done = dict(inputs), 0
    for nodes in _parts(graph.graph.node):
        done += len(nodes)
        wanted = [name for node in nodes for name in node.output if name in tensors]
        if not wanted:
            continue
        values = _compute(framework, model, onnx, file, nodes, known, inputs, wanted)
        for name, value in values.items():
            files[name] = f"{len(files)}.npy"
            np.save(folder / files[name], framework.to_numpy(value, None), allow_pickle=False)
        known.update(values)
        later = _used(graph.graph.node[done:])
        known = {name: value for name, value in known.items() if name in later or name in inputs}
    return files


def _compute(
    framework: Adapter,
    model: OnnxModel,
    onnx: Any,
    file: Parts,
    nodes: Sequence[Any],
    known: Mapping[str, Any],
    inputs: Mapping[str, Any],
    wanted: list[str],
) -> Natives:
    """The values of some nodes, computed from known values. Where one is no known tensor, the whole graph is computed."""
    graph = file.model.graph
    needed = _used(nodes) - {name for node in nodes for name in node.output}
    constants = {*file.initializers, *(tensor.values.name for tensor in graph.sparse_initializer)}
    given = {name: known[name] for name in needed if name in known}
    own = {value.name for value in graph.input}
    part, stored = onnx.ModelProto(), set(file.initializers)
    part.CopyFrom(file.model)
    if len(nodes) == len(graph.node) or needed - set(given) - constants - own:
        given = dict(inputs)
    else:
        _cut(onnx, part.graph, nodes, needed, given)
        stored &= needed
    outputs = {value.name for value in part.graph.output}
    part.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in wanted if name not in outputs)
    session = framework.start(model, "ORT_DISABLE_ALL", file.with_initializers(part, stored))
    accepted = {value.name for value in session.get_inputs()} | constants
    feed = {name: value for name, value in given.items() if name in accepted}
    return dict(framework.run_values(session, feed, wanted))


def _cut(onnx: Any, graph: Any, nodes: Sequence[Any], needed: set[str], given: Mapping[str, Any]) -> None:
    """Leave only these nodes in a graph without initializers, and what they need. given: values that are inputs now."""
    made = {name for node in nodes for name in node.output}
    _keep(graph.node, nodes)
    _keep(graph.sparse_initializer, [each for each in graph.sparse_initializer if each.values.name in needed])
    _keep(graph.input, [each for each in graph.input if each.name in needed])
    _keep(graph.output, [each for each in graph.output if each.name in made])
    _keep(graph.value_info, [each for each in graph.value_info if each.name in made | needed])
    own = {value.name for value in graph.input}
    for name, value in given.items():
        if name not in own:
            bits = isinstance(value, Bits)
            kind = onnx.TensorProto.BFLOAT16 if bits else onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            graph.input.append(onnx.helper.make_tensor_value_info(name, kind, value.shape))


def _keep(field: Any, left: Sequence[Any]) -> None:
    """Leave only these messages in a repeated field."""
    copies = [copy.deepcopy(each) for each in left]
    del field[:]
    field.extend(copies)


def _parts(nodes: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The nodes in their order, with at most EXPOSED values a part. A short graph is one part, and is returned as it is."""
    if sum(len(node.output) for node in nodes) <= EXPOSED:
        yield nodes
        return
    part: list[Any] = []
    for node in nodes:
        if part and sum(len(each.output) for each in part) + len(node.output) > EXPOSED:
            yield part
            part = []
        part.append(node)
    yield part


def _used(nodes: Sequence[Any]) -> set[str]:
    """The names that some nodes use, in their subgraphs, too."""
    found: set[str] = set()
    for node in nodes:
        found.update(name for name in node.input if name)
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                found |= _used(graph.node) | {value.name for value in graph.output}
    return found


def _tensors(model: Any) -> Iterator[str]:
    """The names of the values that are tensors."""
    others = {
        value.name
        for value in (*model.graph.value_info, *model.graph.output)
        if value.type.WhichOneof("value") not in (None, "tensor_type")
    }
    for node in model.graph.node:
        if node.op_type.startswith(("Sequence", "Optional")) or node.op_type in OF_NO_TENSORS:
            others.update(name for name in node.output if node.op_type not in ("SequenceLength", "SequenceAt"))
        yield from (name for name in node.output if name and name not in others)
