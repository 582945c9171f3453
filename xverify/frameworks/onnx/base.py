"""Code that the adapters share whose runtime computes the reference's ONNX export.

The initializers of the export are set by name from the canonical weights.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Framework, Source
from xverify.framework.capture import Recorder
from xverify.framework.decoding import Decoder
from xverify.framework.runner import OnArrays
from xverify.frameworks.onnx.decoder_graph import DecoderGraph, decoder_graph
from xverify.frameworks.onnx.decoding import Call, OnnxDecoder
from xverify.weights import onnx as weights

UNLIMITED = 2**31


class OnExport(OnArrays, Framework):
    """The base class of the adapters. A subclass sets ``onnx`` and adds modes, ``opened``, ``values`` and its environment."""

    runs_export = True
    decodes = True
    decoding_modes = None
    captured_mode = ""  # fewer operators are fused in a captured graph
    # Layers that one run exposes. More layers need memory for their values; fewer layers need more compilations of the graph. It
    # must be UNLIMITED where the rounding of a value depends on which others are exposed.
    exposed: ClassVar[int] = 128
    streams_weights = True
    # The module onnx.
    onnx: Any
    # The folder of the external data of the export.
    data: Path = Path()

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        if source.onnx is None:
            raise Unsupported("needs an ONNX export of the model, and the reference made none")
        if float64:
            raise Unsupported("runs the float32 export, which cannot be built in float64")
        self.data = source.onnx.parent
        return self.onnx.load(source.onnx, load_external_data=False)

    def opened(self, model: Any, threads: int) -> Call:
        """What computes a graph as the callable that was made last does. threads: their number; 0 for that of the run."""
        raise NotImplementedError

    def decoder(self, model: Any, inputs: Mapping[str, str | None], output: str) -> Decoder:
        return OnnxDecoder(self, model, self.decoder_graph(model, list(inputs)))

    def decoder_graph(self, model: Any, inputs: Sequence[str]) -> DecoderGraph:
        """What a graph takes as a decoder. inputs: the names of the spec. Raises Unsupported for another graph."""
        return decoder_graph(model.graph, inputs, self.onnx.helper.tensor_dtype_to_np_dtype, self.setup.cache)

    def feed(self, model: Any, inputs: Sequence[Array]) -> dict[str, Array]:
        """The inputs of a graph by name. A decoder is given all tokens, and no cache. inputs: those of the spec, in order."""
        names = [tensor.name for tensor in model.graph.input]
        if len(names) <= len(inputs):
            return dict(zip(names, inputs))
        tokens, *more = inputs
        return self.decoder_graph(model, self.setup.inputs).feed(tokens, more=more)

    def returned(self, model: Any, inputs: Sequence[Array]) -> list[str]:
        """The outputs of a graph, without the cache of a decoder. inputs: those of the spec."""
        if len(model.graph.input) <= len(inputs):
            return [tensor.name for tensor in model.graph.output]
        return [self.decoder_graph(model, self.setup.inputs).output]

    @contextmanager
    def readable(self, model: Any) -> Iterator[Path | None]:
        """A file of the graph in the folder of its external data; None for a graph that holds all its weights.

        A runtime finds external data by the folder of the file that it reads.
        """
        if not any(map(self.onnx.external_data_helper.uses_external_data, model.graph.initializer)):
            yield None
            return
        handle, name = tempfile.mkstemp(".onnx", dir=self.data)
        with os.fdopen(handle, "wb") as file:
            file.write(model.SerializeToString())
        try:
            yield Path(name)
        finally:
            Path(name).unlink()

    def values(self, model: Any, feed: Mapping[str, Array], tensors: Sequence[str]) -> Sequence[Array]:
        """Run a graph once, with as few fused operators as the runtime allows, and return these outputs of the graph.

        feed: name of an input -> value.
        """
        raise NotImplementedError

    def layers(self, model: Any) -> dict[str, list[Any]]:
        """The modules that the export names in its nodes.

        The export writes the second call of ``relu`` as ``relu_1``. Such a node is listed under both names, because a module may
        itself be called ``relu_1``.
        """
        found: dict[str, list[Any]] = {}
        for node in model.graph.node:
            for strip_calls in (False, True):
                found.setdefault(".".join(scope(node.name, strip_calls)), []).append(node)
        found.pop("", None)
        return found

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        """Record layers by making their inputs and outputs outputs of the graph, for some layers in each run.

        The outputs of the fused graph are compared separately.
        """
        layers = self._named_nodes(model, names)
        feed, outputs = self.feed(model, inputs), self.returned(model, inputs)
        users, made = _users(model), _computed_weights(model)
        values: dict[str, Array] = {}
        for start in range(0, max(1, len(layers)), self.exposed):
            flows = [
                (name, *_flow(nodes, users, model, {value for value, own in made.items() if own == name}))
                for name, nodes in layers[start : start + self.exposed]
            ]
            wanted = {tensor for _, layer_inputs, layer_outputs in flows for tensor in (*layer_inputs, *layer_outputs)}
            wanted |= set(outputs) if start + self.exposed >= len(layers) else set()
            values = {**feed, **self.expose(model, feed, sorted(wanted - set(feed)))}
            for name, layer_inputs, layer_outputs in flows:
                record = recorder.begin(name, [values[tensor] for tensor in layer_inputs])
                recorder.end(record, [values[tensor] for tensor in layer_outputs])
        return [values[name] for name in outputs]

    def _named_nodes(self, model: Any, names: Mapping[str, str]) -> list[tuple[str, list[Any]]]:
        """(canonical name, nodes) of each call of a layer. names: native -> canonical name."""
        calls: dict[tuple[str, ...], list[Any]] = {}
        for node in model.graph.node:
            calls.setdefault(scope(node.name, strip_calls=False), []).append(node)
        result = []
        for path, nodes in calls.items():
            spellings = (".".join(path), ".".join(map(_strip_call, path)))
            name = next((spelling for spelling in spellings if spelling in names), None)
            if name is not None:
                result.append((names[name], nodes))
        return result

    def expose(self, model: Any, feed: Mapping[str, Array], tensors: list[str]) -> dict[str, Array]:
        """Run the graph with these tensors as outputs: name -> value. feed: name of an input -> value."""
        exposed = self.onnx.ModelProto()
        exposed.CopyFrom(model)
        known = {tensor.name for tensor in exposed.graph.output}
        exposed.graph.output.extend(
            self.onnx.helper.make_empty_tensor_value_info(tensor) for tensor in tensors if tensor not in known
        )
        return dict(zip(tensors, self.values(exposed, feed, tensors)))

    def load_weights(self, model: Any, arrays: Mapping[str, Array]) -> None:
        weights.to_model(model, arrays, self.data)

    def save_weights(self, model: Any) -> dict[str, Array]:
        arrays: dict[str, Array] = weights.from_model(model, self.data)
        return arrays

    def weights_of(self, model: Any) -> Mapping[str, Array]:
        return weights.OfModel(model, self.data)


def _strip_call(part: str) -> str:
    """A part of a path without the number of the call: ``relu`` for ``relu_1``, its second call."""
    return re.sub(r"_\d+$", "", part)


def scope(node: str, strip_calls: bool) -> tuple[str, ...]:
    """The path of the module that a node was exported from: "/layer1/layer1.0/relu_1/Relu" -> layer1.0, relu_1.

    strip_calls: leave the numbers of calls out.
    """
    parts: list[str] = []
    for part in node.split("/")[1:-1]:
        part = _strip_call(part) if strip_calls else part
        if parts and part.startswith(_strip_call(parts[-1]) + "."):
            parts[-1] = part  # the name of an item of a list or a sequence includes the name of the list
        else:
            parts.append(part)
    return tuple(parts)


def _users(model: Any) -> dict[str, list[str]]:
    """Name of a value -> names of the nodes that use it; "" stands for the outputs of the graph."""
    users: dict[str, list[str]] = {tensor.name: [""] for tensor in model.graph.output}
    for node in model.graph.node:
        for value in node.input:
            users.setdefault(value, []).append(node.name)
    return users


def _computed_weights(model: Any) -> dict[str, str]:
    """Value -> layer, for every value that is computed from constants and from weights of this layer alone, as by a weight norm."""
    weights = {each.name: _layer_of(each.name) for each in model.graph.initializer}
    constants = {value for node in model.graph.node if node.op_type == "Constant" for value in node.output}
    constants |= {name for name in weights if name.startswith("onnx::")}
    found: dict[str, str] = {}
    for node in model.graph.node:  # a node follows those that make its inputs
        given = [value for value in node.input if value and value not in constants]
        owners = {found.get(value) or weights.get(value, "") for value in given}
        if len(owners) == 1 and "" not in owners:
            found.update(dict.fromkeys(node.output, owners.pop()))
        elif node.input and not given:
            constants.update(node.output)
    return found


def _layer_of(weight: str) -> str:
    """The layer of a weight, whose parametrizations are parts of it."""
    return weight.partition(".parametrizations.")[0] if ".parametrizations." in weight else weight.rpartition(".")[0]


def _flow(
    nodes: list[Any], users: Mapping[str, list[str]], model: Any, computed: set[str]
) -> tuple[list[str], list[str]]:
    """The names of the values that these nodes take from others, without weights, and of those that others use.

    computed: values that are computed from the weights of the layer alone.
    """
    own = {node.name for node in nodes}
    inside = computed | {value for node in nodes for value in node.output}
    inside |= {tensor.name for tensor in model.graph.initializer}
    inputs = [value for node in nodes for value in node.input if value and value not in inside]
    outputs = [value for node in nodes for value in node.output if set(users.get(value, ())) - own]
    return list(dict.fromkeys(inputs)), list(dict.fromkeys(outputs))
