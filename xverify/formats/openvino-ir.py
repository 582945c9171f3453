"""OpenVINO's own files: a graph in NAME.xml, with its weights in NAME.bin beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.parsers import expat

from xverify import reading
from xverify.errors import UsageError
from xverify.formats._openvino import OnOpenVINO
from xverify.formats._protobuf import DEEPEST

_BEGINNING = re.compile(rb"\s*(<\?xml[^>]*\?>)?\s*<net\s[^>]*\bversion=\"\d+\"")
_CONSTANT = re.compile(rb"<data\b[^>]*\boffset=\"(\d+)\"[^>]*\bsize=\"(\d+)\"")


class Adapter(OnOpenVINO):
    name = "openvino-ir"
    title = "OpenVINO IR"
    writes_onnx = True

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if not path.is_file():
            return False
        with reading.opened(path) as file:
            return _BEGINNING.match(file.read(1024)) is not None

    @classmethod
    def parts(cls, path: Path) -> tuple[Path, ...]:
        return (path.with_suffix(".bin"),)

    @classmethod
    def check(cls, path: Path) -> None:
        text = reading.content(path)
        if not text.rstrip().endswith(b"</net>"):
            raise UsageError(f"{path.name}: this OpenVINO IR is truncated: it does not end with </net>")
        _check_nesting(path, text)
        ends = [int(offset) + int(size) for offset, size in _CONSTANT.findall(text)]
        weights = path.with_suffix(".bin")
        there = reading.present(weights)  # OpenVINO also opens one of which no constant is a part
        if not ends:
            return
        if there is None:
            raise UsageError(
                f"{path.name}: the weights of this OpenVINO IR lie in {weights.name}, which is not beside it"
            )
        if max(ends) > weights.stat().st_size:
            raise UsageError(
                f"{path.name}: its weights reach up to byte {max(ends)} of {weights.name}, which has "
                f"{weights.stat().st_size} bytes: it is truncated"
            )

    def write_onnx(self, model: Any, inputs: Mapping[str, Any], path: Path) -> dict[str, str]:
        from xverify.formats._openvino_graph import write_onnx

        return write_onnx(self, model, inputs, path)

    def node_values(
        self, model: Any, inputs: Mapping[str, Any], folder: Path, graph: Path | None = None
    ) -> dict[str, str]:
        from xverify.formats._openvino_graph import node_values

        return node_values(self, model, inputs, folder)


def _check_nesting(path: Path, text: bytes) -> None:
    """Raise UsageError for a document that is no XML, is nested too deep, or has a type of its own, with entities."""
    depth = 0

    def begin(*_: Any) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise UsageError(f"{path.name}: the elements of this OpenVINO IR are nested more than {DEEPEST} deep")

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def typed(*_: Any) -> None:
        raise UsageError(f"{path.name}: this OpenVINO IR has a document type, which OpenVINO does not write")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = begin, end, typed
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise UsageError(f"{path.name}: this OpenVINO IR is damaged: {error}") from None
