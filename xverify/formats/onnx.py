"""ONNX files on ONNX Runtime. A file is opened from its path, so it and its external data may be larger than 2 GiB."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Failed, SubjectError, Unsupported
from xverify.formats._bfloat16 import Bits, to_bits
from xverify.formats._onnx_file import OnnxFile
from xverify.formats._onnx_nodes import node_values
from xverify.framework.adapter import Array
from xverify.framework.modelfile import Natives, Signature, Tensor
from xverify.framework.runner import OnArrays, refuse_float64
from xverify.weights import onnx_graph
from xverify.weights.stored import Stored

BFLOAT16 = 16  # its number in onnx.TensorProto
ITEMS = 2  # items of a sequence that is an input
# ONNX Runtime's names of dtypes that numpy calls otherwise.
_DTYPES = {
    "float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2",
    "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
# What ONNX Runtime says about operators and versions that it does not have -> what xverify says.
_UNSUPPORTED = (
    (r"No Op registered for (\S+) with domain_version of (\d+)", r"operator \1 does not exist in opset \2"),
    (
        r"Could not find an implementation for (\w+)\((\d+)\)",
        r"no kernel computes operator \1 of opset \2 with these dtypes",
    ),
    (
        r"(\S+)\(-?\d*\) is not a registered function/op",
        r"operator \1 is of no standard opset; see --trust for operator libraries",
    ),
    (
        r"Opset (\d+) is under development.*support for domain (\S+) is till opset (\d+)",
        r"opset \1 of \2 is newer than \3",
    ),
    (r"Unsupported model IR version: (\d+), max supported IR version: (\d+)", r"IR version \1 is newer than \2"),
)


def optimized(framework: Adapter, model: OnnxModel, example: tuple[Any, ...]) -> Any:
    """Run the graph with all optimisations, as applications do."""
    return framework.call(model, framework.session(model, "ORT_ENABLE_ALL"))


def basic(framework: Adapter, model: OnnxModel, example: tuple[Any, ...]) -> Any:
    """Run the graph with basic optimisations only."""
    return framework.call(model, framework.session(model, "ORT_ENABLE_BASIC"))


def unoptimized(framework: Adapter, model: OnnxModel, example: tuple[Any, ...]) -> Any:
    """Run the graph node by node, as it is written."""
    return framework.call(model, framework.session(model, "ORT_DISABLE_ALL"))


@dataclass
class OnnxModel:
    """An ONNX file that was opened.

    path: the file. libraries: paths of libraries of custom operators.
    sessions: name of an optimisation level -> its session; a session is kept, because opening it takes long.
    """

    path: Path
    libraries: Sequence[str] = ()
    sessions: Natives = field(default_factory=dict)


class Adapter(OnnxFile, OnArrays):
    name = "onnx"
    runtime = "onnxruntime"
    extra = "onnxruntime"
    needs = {"onnxruntime": "onnxruntime"}
    modes = {"all": optimized, "basic": basic, "none": unoptimized}
    implicit_mode = "all"

    def __init__(self, threads: int, device: str) -> None:
        import onnxruntime

        self.ort = onnxruntime
        self.threads = threads

    def open(self, path: Path, options: Mapping[str, Any], float64: bool) -> OnnxModel:
        """options: "libraries": paths of libraries of custom operators, which are programs and need "trust"."""
        refuse_float64(float64)
        libraries = tuple(options.get("libraries", ()))
        if libraries and not options.get("trust"):
            raise Failed(f"{libraries[0]} is a program; if you trust its author, say so with --trust")
        model = OnnxModel(path, libraries)
        self.session(model, "ORT_ENABLE_ALL")
        return model

    def session(self, model: OnnxModel, level: str) -> Any:
        """The session of this optimisation level."""
        if level not in model.sessions:
            model.sessions[level] = self.start(model, level)
        return model.sessions[level]

    def start(self, model: OnnxModel, level: str, graph: bytes | None = None) -> Any:
        """A new session. graph: a serialised ModelProto to run instead of the file, with the file's external data."""
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.graph_optimization_level = getattr(self.ort.GraphOptimizationLevel, level)
        # Idle threads that spin would keep a core busy during the next subject's block.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        for library in model.libraries:
            options.register_custom_ops_library(str(library))
        if graph is not None:
            folder = str(model.path.parent.resolve())
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        source = str(model.path) if graph is None else graph
        return self.ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    def call(self, model: OnnxModel, session: Any) -> Any:
        """The session as a function of its inputs."""
        outputs = [tensor.name for tensor in session.get_outputs()]
        signature = self.signature(model)
        inputs = [tensor.name for tensor in signature.inputs]
        if any(tensor.dtype == "bfloat16" for tensor in (*signature.inputs, *signature.outputs)):
            return lambda *arrays: self.run_values(session, dict(zip(inputs, arrays)), outputs)

        def run(*arrays: Array) -> Natives:
            feed = grouped(session, dict(zip(inputs, arrays)))
            return dict(_tensors(zip(outputs, session.run(outputs, feed))))

        return run

    def run_values(self, session: Any, feed: Mapping[str, Any], outputs: list[str]) -> Natives:
        """Run a session with tensors of ONNX Runtime's own class, which has bfloat16."""
        if any(isinstance(value, list) for value in feed.values()):
            return dict(zip(outputs, session.run(outputs, dict(feed))))
        make = self.ort.OrtValue
        values = {
            name: make.ortvalue_from_numpy_with_onnx_type(value.bits, BFLOAT16)
            if isinstance(value, Bits)
            else make.ortvalue_from_numpy(value)
            for name, value in feed.items()
        }
        return {name: _read(value) for name, value in zip(outputs, session.run_with_ort_values(outputs, values))}

    def node_values(
        self, model: OnnxModel, inputs: Mapping[str, Any], folder: Path, graph: Path | None = None
    ) -> dict[str, str]:
        return node_values(self, model, inputs, folder, graph or model.path)

    def signature(self, model: OnnxModel) -> Signature:
        session = self.session(model, "ORT_ENABLE_ALL")
        # The number of tensors in a sequence is known when it is computed.
        outputs = [each for each in session.get_outputs() if not each.type.startswith("seq(tensor(")]
        inputs = [tensor for each in session.get_inputs() for tensor in _given(each)]
        return Signature(tuple(inputs), tuple(map(_tensor, outputs)))

    def stored(self, model: OnnxModel) -> Stored:
        import onnx

        return onnx_graph.stored(onnx.load(model.path))

    def cause(self, error: Exception) -> tuple[type[SubjectError], str]:
        return explain(str(error))

    def narrow(self, array: Array, dtype: str) -> Any:
        return Bits(to_bits(array)) if dtype == "bfloat16" else super().narrow(array, dtype)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return tensor.as_float32() if isinstance(tensor, Bits) else np.asarray(tensor)

    def environment(self) -> dict[str, object]:
        return {"onnxruntime": self.ort.__version__, "threads": self.threads}


def explain(text: str) -> tuple[type[SubjectError], str]:
    """The kind and the cause of an error of ONNX Runtime."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", " ".join(text.split()))
    text = re.sub(r"/onnxruntime_src/\S+ .*?\) (?=\S)", "", text)
    for pattern, says in _UNSUPPORTED:
        match = re.search(pattern, text)
        if match:
            return Unsupported, match.expand(says)
    return Failed, text.strip()


def _given(tensor: Any) -> Iterator[Tensor]:
    """The tensors that an input takes: one, or the items of a sequence, whose shapes the runtime does not say."""
    items = re.fullmatch(r"seq\(tensor\((\w+)\)\)", tensor.type)
    if items is None:
        yield _tensor(tensor)
        return
    for place in range(ITEMS):
        yield Tensor(f"{tensor.name}_{place}", None, _DTYPES.get(items[1], items[1]))


def grouped(session: Any, values: Mapping[str, Any]) -> Natives:
    """The inputs as a session takes them, with the items of a sequence in a list."""
    found = dict(values)
    for tensor in session.get_inputs():
        if tensor.type.startswith("seq("):
            found[tensor.name] = [found.pop(f"{tensor.name}_{place}") for place in range(ITEMS)]
    return found


def _tensor(tensor: Any) -> Tensor:
    match = re.fullmatch(r"(?:optional\()?tensor\((\w+)\)\)?", tensor.type)
    if match is None:
        raise Unsupported(f"{tensor.name!r} is a {tensor.type}, and xverify compares tensors only")
    # ONNX Runtime gives a dynamic dimension as its name, or as None, and an optional tensor no shape.
    shape = None if tensor.type.startswith("optional(") else tuple(tensor.shape)
    return Tensor(tensor.name, shape, _DTYPES.get(match[1], match[1]))


def _tensors(outputs: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """(name, array) of every output; each item of a sequence is one by itself. An optional output that is left out is none."""
    for name, value in outputs:
        if isinstance(value, list):
            yield from ((f"{name}_{place}", each) for place, each in enumerate(value))
        elif value is not None:
            yield name, value


def _read(value: Any) -> Any:
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()
    shape = tuple(value.shape())
    size = math.prod(shape)
    if not size:
        return Bits(np.zeros(shape, np.uint16))
    source = (ctypes.c_uint16 * size).from_address(value.data_ptr())
    return Bits(np.array(np.ctypeslib.as_array(source)).reshape(shape))
