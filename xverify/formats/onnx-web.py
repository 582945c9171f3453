"""ONNX files on onnxruntime-web, where ``--on onnxruntime-web:wasm`` asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xverify.errors import SubjectError, Unsupported
from xverify.formats import onnx
from xverify.formats._onnx_file import externals
from xverify.framework.modelfile import Natives
from xverify.framework.runner import refuse_float64
from xverify.frameworks.onnxruntime_web.node import PACKAGE, Call, InNode, Session


class Adapter(InNode, onnx.Adapter):
    name = "onnx-web"
    runtime = f"{PACKAGE}:wasm"
    on_request = True
    extra = ""
    needs = {PACKAGE: "onnxruntime_web"}
    isolated = PACKAGE

    def __init__(self, threads: int, device: str) -> None:
        self.start_node(threads)

    def open(self, path: Path, options: Mapping[str, Any], float64: bool) -> onnx.OnnxModel:
        refuse_float64(float64)
        if options.get("libraries"):
            raise Unsupported("it takes no libraries of operators, which are compiled for another processor")
        model = onnx.OnnxModel(path)
        self.session(model, "ORT_ENABLE_ALL")
        return model

    def start(self, model: onnx.OnnxModel, level: str, graph: bytes | None = None) -> Session:
        folder = model.path.parent.resolve()
        files = {each.location: folder / each.location for each in externals(model.path)}
        return self.node(self.threads).open(model.path.resolve() if graph is None else graph, level, files)

    def call(self, model: onnx.OnnxModel, session: Session) -> Call:
        inputs, outputs = ([each.name for each in side] for side in (session.get_inputs(), session.get_outputs()))
        return Call(session, outputs, lambda arrays: dict(zip(inputs, arrays)), lambda found: dict(zip(outputs, found)))

    def run_values(self, session: Session, feed: Mapping[str, Any], outputs: list[str]) -> Natives:
        return dict(zip(outputs, session.run(outputs, feed)))

    def cause(self, error: Exception) -> tuple[type[SubjectError], str]:
        kind, says = super().cause(error)
        return (Unsupported if "unsupported data type" in says else kind), says
