"""onnxruntime-web in Node.js, by WebAssembly. It runs the reference's ONNX export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xverify.framework.adapter import Array
from xverify.frameworks.onnx.base import OnExport
from xverify.frameworks.onnx.decoding import Call as GraphCall
from xverify.frameworks.onnxruntime_web.node import PACKAGE, Call, InNode, Session


def wasm(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Run the graph with all optimisations, by WebAssembly."""
    return framework.function(model, example)


class Adapter(InNode, OnExport):
    name = "onnxruntime-web"
    copies = 6.0  # three in Python, and three in Node.js
    needs = {PACKAGE: "onnxruntime_web"}
    isolated = PACKAGE
    modes = {"wasm": wasm}

    def __init__(self, threads: int, device: str) -> None:
        import onnx

        self.onnx = onnx
        self.start_node(threads)

    def function(self, model: Any, example: Sequence[Array]) -> Call:
        """The model as a function of its inputs."""
        session = self.open(model, "ORT_ENABLE_ALL")
        return Call(
            session, self.returned(model, example), lambda inputs: self.feed(model, inputs), lambda found: found
        )

    def opened(self, model: Any, threads: int) -> GraphCall:
        session = self.open(model, "ORT_ENABLE_ALL", threads)
        return lambda feed, names: session.run(names, feed)

    def open(self, model: Any, level: str, threads: int = 0) -> Session:
        """A session for this graph.

        level: name of an optimisation level of ONNX Runtime. threads: their number; 0 for that of the run.
        """
        node, helper = self.node(threads or self.threads), self.onnx.external_data_helper
        stored = filter(helper.uses_external_data, model.graph.initializer)
        names = {helper.ExternalDataInfo(each).location for each in stored}
        return node.open(model.SerializeToString(), level, {name: self.data / name for name in sorted(names)})

    def values(self, model: Any, feed: Mapping[str, Array], tensors: Sequence[str]) -> Sequence[Array]:
        # Without optimisations no operators are fused, so a value is the same in every run that exposes it.
        return self.open(model, "ORT_DISABLE_ALL").run(tensors, feed)
