"""ONNX Runtime on the reference's ONNX export, whose initializers are set from the canonical weights by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Framework, Source
from xverify.framework.capture import Recorder
from xverify.weights import onnx as weights

EXPOSED = 48  # layers whose values one run exposes: a session takes a second to make, and values take memory


def optimized(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.session(model, "ORT_ENABLE_ALL")


def basic(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.session(model, "ORT_ENABLE_BASIC")


class Adapter(Framework):
    name = "onnxruntime"
    needs = {"onnxruntime": "onnxruntime", "onnx": "onnx"}
    modes = {"all": optimized, "basic": basic}
    implicit_mode = "all"
    default_modes = ("all",)
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
        session = self.open(model, level)
        names = [tensor.name for tensor in session.get_inputs()]

        def run(*inputs: np.ndarray) -> Any:
            return session.run(None, dict(zip(names, inputs)))

        return run

    def open(self, model: Any, level: str) -> Any:
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = getattr(self.ort.GraphOptimizationLevel, level)
        # Idle threads that spin would take the core from the next subject's block.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return self.ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def layers(self, model: Any) -> dict[str, list[Any]]:
        """The modules that the export names in its nodes; the second call of ``relu`` is written ``relu_1``, so both are here."""
        found: dict[str, list[Any]] = {}
        for node in model.graph.node:
            for plain in (False, True):
                found.setdefault(".".join(_scope(node.name, plain)), []).append(node)
        found.pop("", None)
        return found

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        """Expose what flows between the layers, some layers a run.

        Nothing is fused, so that a value is the same in whichever run it is exposed. What the fused session computes is
        compared at its outputs.
        """
        groups: dict[tuple[str, ...], list[Any]] = {}
        for node in model.graph.node:
            groups.setdefault(_scope(node.name, plain=False), []).append(node)
        layers = []
        for scope, nodes in groups.items():
            name = next((own for own in (".".join(scope), ".".join(map(_uncalled, scope))) if own in names), None)
            if name is not None:
                layers.append((names[name], nodes))
        feed = dict(zip([tensor.name for tensor in model.graph.input], inputs))
        outputs = [tensor.name for tensor in model.graph.output]
        users = _users(model)
        for start in range(0, len(layers), EXPOSED):
            flows = [(name, *_flow(nodes, users, model)) for name, nodes in layers[start : start + EXPOSED]]
            wanted = {tensor for _, taken, given in flows for tensor in (*taken, *given)}
            values = {**feed, **self._expose(model, feed, sorted(wanted - set(feed)))}
            for name, taken, given in flows:
                record = recorder.begin(name, [values[tensor] for tensor in taken])
                recorder.end(record, [values[tensor] for tensor in given])
        found = self._expose(model, feed, outputs)
        return [found[name] for name in outputs]

    def _expose(self, model: Any, feed: dict[str, np.ndarray], tensors: list[str]) -> dict[str, np.ndarray]:
        exposed = self.onnx.ModelProto()
        exposed.CopyFrom(model)
        known = {tensor.name for tensor in exposed.graph.output}
        exposed.graph.output.extend(
            self.onnx.helper.make_empty_tensor_value_info(tensor) for tensor in tensors if tensor not in known
        )
        session = self.open(exposed, "ORT_DISABLE_ALL")
        return dict(zip(tensors, session.run(tensors, feed)))

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


def _uncalled(part: str) -> str:
    """``relu`` for ``relu_1``, its second call."""
    return re.sub(r"_\d+$", "", part)


def _scope(node: str, plain: bool) -> tuple[str, ...]:
    """The module that a node was exported from, as the parts of its path: "/layer1/layer1.0/relu_1/Relu" -> layer1.0, relu_1.

    plain: without the numbers of later calls.
    """
    parts: list[str] = []
    for part in node.split("/")[1:-1]:
        part = _uncalled(part) if plain else part
        if parts and part.startswith(_uncalled(parts[-1]) + "."):
            parts[-1] = part  # an item of a list or sequence is written with the name of its holder
        else:
            parts.append(part)
    return tuple(parts)


def _users(model: Any) -> dict[str, list[str]]:
    """Value -> names of the nodes that take it; "" for the graph's output."""
    users: dict[str, list[str]] = {tensor.name: [""] for tensor in model.graph.output}
    for node in model.graph.node:
        for value in node.input:
            users.setdefault(value, []).append(node.name)
    return users


def _flow(nodes: list[Any], users: Mapping[str, list[str]], model: Any) -> tuple[list[str], list[str]]:
    """What flows into these nodes, weights apart, and out of them."""
    own = {node.name for node in nodes}
    made = {value for node in nodes for value in node.output}
    weights = {tensor.name for tensor in model.graph.initializer}
    taken = [value for node in nodes for value in node.input if value and value not in made and value not in weights]
    given = [value for node in nodes for value in node.output if set(users.get(value, ())) - own]
    return list(dict.fromkeys(taken)), list(dict.fromkeys(given))
