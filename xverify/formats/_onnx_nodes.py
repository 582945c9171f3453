"""The values of all nodes of an ONNX file, as ONNX Runtime computes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from xverify.formats.onnx import Adapter, OnnxModel

EXPOSED = 256  # values that one session exposes; more need memory, fewer need more sessions


def node_values(
    framework: Adapter, model: OnnxModel, inputs: Mapping[str, Any], folder: Path, path: Path
) -> dict[str, str]:
    """Compute one case without optimisations, and write the value of every node: name of a value -> file name in the folder.

    inputs: name -> native input. path: the ONNX file to compute, with the external data of the model.
    Sequences and optional values are left out. Needs the package onnx.
    """
    import onnx

    graph = onnx.load(path, load_external_data=False)
    files: dict[str, str] = {}
    names = list(_tensors(onnx, graph))
    own = [tensor.name for tensor in graph.graph.output]
    for start in range(0, len(names), EXPOSED):
        wanted = names[start : start + EXPOSED]
        exposed = onnx.ModelProto()
        exposed.CopyFrom(graph)
        added = [onnx.helper.make_empty_tensor_value_info(name) for name in wanted if name not in own]
        exposed.graph.output.extend(added)
        session = framework.start(model, "ORT_DISABLE_ALL", exposed.SerializeToString())
        for name, value in framework.run_values(session, inputs, wanted).items():
            files[name] = f"{len(files)}.npy"
            np.save(folder / files[name], framework.to_numpy(value, None), allow_pickle=False)
    return files


def _tensors(onnx: Any, graph: Any) -> Iterator[str]:
    """The names of the values that are tensors."""
    others = {
        value.name
        for value in (*graph.graph.value_info, *graph.graph.output)
        if value.type.WhichOneof("value") not in (None, "tensor_type")
    }
    for node in graph.graph.node:
        if node.op_type.startswith(("Sequence", "Optional")) or node.op_type in (
            "SplitToSequence",
            "If",
            "Loop",
            "Scan",
        ):
            others.update(name for name in node.output if node.op_type not in ("SequenceLength", "SequenceAt"))
        yield from (name for name in node.output if name and name not in others)
