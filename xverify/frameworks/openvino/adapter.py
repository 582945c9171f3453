"""OpenVINO on the processor. It runs the reference's ONNX export, which it converts itself."""

from __future__ import annotations

import importlib.metadata
import io
from collections.abc import Mapping, Sequence
from typing import Any

from xverify.framework.adapter import Array
from xverify.frameworks.onnx.base import UNLIMITED, OnExport
from xverify.frameworks.onnx.decoding import Call

FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}


def float32(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Compute in float32, as the model says."""
    return framework.function(model, FLOAT32, example)


def default(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Compute in the precision that OpenVINO chooses for this processor: bfloat16 or float16 where it has instructions for it."""
    return framework.function(model, {}, example)


class Adapter(OnExport):
    name = "openvino"
    copies = 1.5
    needs = {"openvino": "openvino", "onnx": "onnx"}
    modes = {"float32": float32, "default": default}
    implicit_mode = "float32"
    properties: Mapping[str, str] = FLOAT32  # of the callable that was made last; a decoder has the same
    exposed = UNLIMITED  # OpenVINO always fuses operators, unless a value between them is an output of the graph

    def __init__(self, threads: int, device: str) -> None:
        import onnx
        import openvino

        self.onnx = onnx
        self.openvino = openvino
        self.core = openvino.Core()
        self.threads = threads

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        # OpenVINO's converter reports its use over the network, except where this variable is set.
        return {**super().variables(threads, device), "CI": "true"}

    def function(self, model: Any, properties: Mapping[str, str], example: Sequence[Array]) -> Any:
        """The model as a function of its inputs. properties: of OpenVINO, beside threads."""
        self.properties = properties
        compute, outputs = self.opened(model, 0), self.returned(model, example)
        return lambda *inputs: compute(self.feed(model, inputs), outputs)

    def opened(self, model: Any, threads: int) -> Call:
        request = self.open(model, self.properties, threads)

        def compute(feed: Mapping[str, Array], names: Sequence[str]) -> Sequence[Array]:
            found = request.infer(dict(feed), share_inputs=True)  # the results are copies
            return [found[name] for name in names]

        return compute

    def open(self, model: Any, properties: Mapping[str, str], threads: int = 0) -> Any:
        """Convert and compile a graph, and make a request, which runs it.

        properties: of OpenVINO, beside threads. threads: their number; 0 for that of the run.
        """
        settings = {"INFERENCE_NUM_THREADS": threads or self.threads, "NUM_STREAMS": "1", **properties}
        with self.readable(model) as path:
            converted = self.core.read_model(io.BytesIO(model.SerializeToString()) if path is None else path)
            return self.core.compile_model(converted, "CPU", settings).create_infer_request()

    def values(self, model: Any, feed: Mapping[str, Array], tensors: Sequence[str]) -> Sequence[Array]:
        found = self.open(model, FLOAT32).infer(dict(feed))
        return [found[name] for name in tensors]

    def environment(self) -> dict[str, object]:
        return {"openvino": importlib.metadata.version("openvino"), "threads": self.threads}
