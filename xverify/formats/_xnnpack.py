"""What XNNPACK computes in a part of a program of ExecuTorch, as the bytes of this part tell it."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xverify.results.precision import LayerPrecision

BACKEND = "XnnpackBackend"
HEADER = 30  # bytes
# Types of XNNPACK -> (dtype, granularity of the scales of weights).
TYPES = {
    "fp32": ("float32", ""),
    "pfp32": ("float32", ""),
    "fp16": ("float16", ""),
    "bf16": ("bfloat16", ""),
    "qint8": ("int8", "per tensor"),
    "quint8": ("uint8", "per tensor"),
    "qcint8": ("int8", "per channel"),
    "qcint4": ("int4", "per channel"),
    "qbint4": ("int4", "per block"),
    "qdint8": ("int8", ""),
    "qpint8": ("int8", ""),
}
DYNAMIC = ("qdint8", "qpint8")  # the scale is that of the values of a call


@dataclass(frozen=True)
class Part:
    """A part that XNNPACK computes.

    nodes: its operators, as XNNPACK calls them. outputs: their number. layers: the precision of the operators with weights.
    """

    nodes: tuple[str, ...]
    outputs: int
    layers: tuple[LayerPrecision, ...]


def read(content: bytes) -> Part:
    """Read a part, with the schema that ExecuTorch has of it. content: its bytes. Raises ValueError for other bytes."""
    from executorch.backends.xnnpack.serialization import xnnpack_graph_serialize as serialize
    from executorch.exir._serialize._flatbuffer import _flatc_decompile

    header = serialize.XNNHeader.from_bytes(content[:HEADER])
    begin = header.flatbuffer_offset
    with tempfile.TemporaryDirectory() as space:
        schema, graph = Path(space) / "schema.fbs", Path(space) / "graph.bin"
        schema.write_bytes(serialize._get_schema_bytes())
        graph.write_bytes(content[begin : begin + header.flatbuffer_size])
        _flatc_decompile(space, str(schema), str(graph))
        text = graph.with_suffix(".json").read_text()
    found = json.loads(re.sub(r":(\s*-?)inf\b", r":\1Infinity", text))
    nodes = tuple(each["xnode_union_type"].removeprefix("XNN") for each in found["xnodes"])
    return Part(nodes, len(found["output_ids"]), tuple(_layers(found)))


def _layers(graph: Mapping[str, Any]) -> Iterator[LayerPrecision]:
    kinds = {}
    for each in graph["xvalues"]:
        value = each["xvalue_union"]
        value = value.get("tensor_value", value)  # a quantised one has its scales beside it
        kinds[value["id_out"]] = value["datatype"].removeprefix("xnn_datatype_")
    for each in graph["xnodes"]:
        node = each["xnode_union"]
        if "filter_id" in node:
            yield _layer(*(kinds[node[name]] for name in ("filter_id", "input1_id", "output_id")))


def _layer(weights: str, values: str, results: str) -> LayerPrecision:
    stored, grain = TYPES.get(weights, (weights, ""))
    given, computed = (TYPES.get(each, (each, ""))[0] for each in (values, results))
    quantised = given if "int" in given else ""
    scheme = ("dynamic" if values in DYNAMIC else "static") if quantised else ""
    return LayerPrecision(stored, "int" in stored, grain, quantised, scheme, computed if "float" in computed else "")
