"""An ONNX file without its weights, which stay where they are: protobuf would copy them several times."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xverify.formats._onnx_file import GRAPH, GRAPH_TAG
from xverify.formats._protobuf import fields, mapped, text
from xverify.framework.adapter import Array

INITIALIZER = 5  # its number in GraphProto
NAME, RAW_DATA = 8, 9  # numbers in TensorProto
LARGE = 2**16  # bytes of an initializer; protobuf copies a smaller one faster
# Number of a type in TensorProto.DataType -> the dtype of numpy that has its bytes.
_PLAIN = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8", 10: "<f2", 11: "<f8"}


@dataclass(frozen=True)
class Parts:
    """An ONNX file in parts.

    model: the ModelProto without initializers. initializers: name -> the bytes of its field of the GraphProto.
    """

    model: Any
    initializers: Mapping[str, memoryview]

    @classmethod
    def read(cls, onnx: Any, path: Path) -> Parts:
        """Find the initializers of a file."""
        data = mapped(path)
        view, model, kept = memoryview(data), onnx.ModelProto(), list[memoryview]()
        initializers: dict[str, memoryview] = {}
        end = 0
        for field in fields(data, 0, len(data)):
            if field.number != GRAPH:
                model.MergeFromString(bytes(view[end : field.end]))
            else:
                place = field.start
                for each in fields(data, field.start, field.end):
                    own = view[place : each.end]
                    if each.number == INITIALIZER:
                        names = [text(data, one) for one in fields(data, each.start, each.end) if one.number == NAME]
                        initializers[names[-1] if names else ""] = own
                    else:
                        kept.append(own)
                    place = each.end
            end = field.end
        model.graph.MergeFromString(b"".join(kept))
        return cls(model, initializers)

    def with_initializers(self, part: Any, names: Collection[str]) -> bytes:
        """A serialised ModelProto with these initializers. A serialised message may give a field in parts, here the graph."""
        pieces = [each for name, each in self.initializers.items() if name in names]
        size, digits = sum(map(len, pieces)), bytearray()
        while size > 127:
            digits.append(size & 127 | 128)
            size >>= 7
        return b"".join([part.SerializeToString(), GRAPH_TAG, bytes([*digits, size]), *pieces])


def load(onnx: Any, path: Path) -> tuple[Any, dict[str, Array]]:
    """(the ModelProto of a file, in which large initializers have no data; the values of these by name)."""
    parts, found = Parts.read(onnx, path), dict[str, Array]()
    for name, own in parts.initializers.items():
        values, header = _large(onnx, own) if len(own) >= LARGE else (None, None)
        if values is None:
            parts.model.graph.MergeFromString(bytes(own))
        else:
            found[name] = values
            parts.model.graph.initializer.append(header)
    return parts.model, found


def _large(onnx: Any, own: memoryview) -> tuple[Array | None, Any]:
    """(the values of an initializer, its TensorProto without data); (None, None) where its bytes are not simply its values."""
    (field,) = fields(own, 0, len(own))
    rest, raw, place = list[memoryview](), None, field.start
    for each in fields(own, field.start, field.end):
        if each.number == RAW_DATA:
            raw = own[each.start : each.end]
        else:
            rest.append(own[place : each.end])
        place = each.end
    header = onnx.TensorProto.FromString(b"".join(rest))
    dtype = np.dtype(_PLAIN.get(header.data_type, "V"))
    if raw is None or dtype.kind == "V" or len(raw) != math.prod(header.dims) * dtype.itemsize:
        return None, None
    return np.array(np.frombuffer(raw, dtype)).reshape(tuple(header.dims)), header
