"""ONNX Runtime. It runs the reference's ONNX export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xverify.framework.adapter import Array
from xverify.frameworks.onnx.base import OnExport
from xverify.frameworks.onnx.decoding import Call


def optimized(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Run the graph with all optimisations."""
    return framework.session(model, "ORT_ENABLE_ALL", example)


def basic(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Run the graph with basic optimisations only."""
    return framework.session(model, "ORT_ENABLE_BASIC", example)


class Adapter(OnExport):
    name = "onnxruntime"
    copies = 3.8
    overhead = 55
    needs = {"onnxruntime": "onnxruntime", "onnx": "onnx"}
    modes = {"all": optimized, "basic": basic}
    implicit_mode = "all"
    default_modes = ("all",)
    level = "ORT_ENABLE_ALL"  # of the callable that was made last; a decoder has the same

    def __init__(self, threads: int, device: str) -> None:
        import onnx
        import onnxruntime

        self.onnx = onnx
        self.ort = onnxruntime
        self.threads = threads

    def session(self, model: Any, level: str, example: Sequence[Array]) -> Any:
        """The model as a function of its inputs. level: name of an optimisation level of ONNX Runtime."""
        self.level = level
        session, outputs = self.open(model, level), self.returned(model, example)
        return lambda *inputs: session.run(outputs, self.feed(model, inputs))

    def opened(self, model: Any, threads: int) -> Call:
        session = self.open(model, self.level, threads)
        return lambda feed, names: session.run(list(names), dict(feed))

    def open(self, model: Any, level: str, threads: int = 0) -> Any:
        """A session for this graph.

        level: name of an optimisation level of ONNX Runtime. threads: their number; 0 for that of the run.
        """
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = threads or self.threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = getattr(self.ort.GraphOptimizationLevel, level)
        # Idle threads that spin would keep a core busy during the next subject's block.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        with self.readable(model) as path:
            graph = model.SerializeToString() if path is None else str(path)
            return self.ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def values(self, model: Any, feed: Mapping[str, Array], tensors: Sequence[str]) -> Sequence[Array]:
        # Without optimisations no operators are fused, so a value is the same in every run that exposes it.
        found: list[Array] = self.open(model, "ORT_DISABLE_ALL").run(list(tensors), dict(feed))
        return found

    def environment(self) -> dict[str, object]:
        return {"onnxruntime": self.ort.__version__, "threads": self.threads}
