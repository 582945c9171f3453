"""ONNX Runtime on the reference's ONNX export, whose initializers are set from the canonical weights by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework import Framework, Source
from xverify.weights import onnx as weights


def optimized(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.session(model, "ORT_ENABLE_ALL")


def basic(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.session(model, "ORT_ENABLE_BASIC")


class Adapter(Framework):
    name = "onnxruntime"
    needs = {"onnxruntime": "onnxruntime", "onnx": "onnx"}
    modes = {"all": optimized, "basic": basic}
    bare = "all"
    usual = ("all",)
    runs_export = True

    def __init__(self, threads: int, device: str) -> None:
        import onnx
        import onnxruntime

        self.onnx = onnx
        self.ort = onnxruntime
        self.threads = threads

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        if source.onnx is None:
            raise Unsupported("needs an ONNX export of the model, and the reference made none")
        if float64:
            raise Unsupported("runs the float32 export; it has no float64 form")
        return self.onnx.load(source.onnx)

    def session(self, model: Any, level: str) -> Any:
        """A function of the inputs, at this optimisation level."""
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = getattr(self.ort.GraphOptimizationLevel, level)
        # Idle threads that spin would take the core from the next subject's block.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = self.ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [tensor.name for tensor in session.get_inputs()]

        def run(*inputs: np.ndarray) -> Any:
            return session.run(None, dict(zip(names, inputs)))

        return run

    def load_weights(self, model: Any, arrays: dict[str, np.ndarray]) -> None:
        weights.to_model(model, arrays)

    def save_weights(self, model: Any) -> dict[str, np.ndarray]:
        return weights.from_model(model)

    def to_native(self, array: np.ndarray, layout: str | None) -> np.ndarray:
        return np.array(array, order="C")

    def to_numpy(self, tensor: Any, layout: str | None) -> np.ndarray:
        return np.asarray(tensor)

    def wait(self, outputs: Any) -> None:
        """A run returns computed arrays."""

    def environment(self) -> dict[str, Any]:
        return {"onnxruntime": self.ort.__version__, "threads": self.threads}
