"""What the formats of ONNX files share that run on onnxruntime-web."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xverify.errors import SubjectError, Unsupported
from xverify.formats import onnx
from xverify.formats._onnx_file import externals
from xverify.framework.modelfile import Natives
from xverify.framework.runner import refuse_float64
from xverify.frameworks.onnxruntime_web.node import PACKAGE, Call, InNode, Session

# What onnxruntime-web says about dtypes and operators that it does not have -> what xverify says.
UNSUPPORTED = (
    (r"unsupported data type: (\w+)", rf"{PACKAGE} hands out no values of type \1 of ONNX"),
    (r"Provider type for (\w+) node with name '.*' is not set", r"no kernel computes operator \1 with these dtypes"),
    (
        r"Program (\w+) requires f16 but the device does not",
        r"operator \1 needs float16, which this WebGPU device lacks",
    ),
)


class OnWeb(InNode, onnx.Adapter):
    """The base class of these formats."""

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
        says = says.removesuffix("; see --trust for operator libraries")
        for pattern, ours in UNSUPPORTED:
            match = re.search(pattern, says)
            if match is not None:
                return Unsupported, match.expand(ours)
        return kind, says
