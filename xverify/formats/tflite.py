"""TensorFlow Lite files on LiteRT (the package ai-edge-litert)."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from xverify import reading
from xverify.errors import Failed, SubjectError, Unsupported, UsageError, first_line
from xverify.formats import _tflite_precision as tflite_precision
from xverify.framework.adapter import Array
from xverify.framework.filenodes import Traced
from xverify.framework.modelfile import Change, ModelFile, Signature, Tensor
from xverify.framework.runner import OnArrays, refuse_float64
from xverify.results.precision import Precision
from xverify.weights.stored import Stored

DEFAULT = "serving_default"


Detail = dict[str, Any]  # what LiteRT tells about a tensor: numbers, texts and arrays


def xnnpack(framework: Adapter, model: LiteModel, example: tuple[Any, ...]) -> Any:
    """Run with the default delegates, which on a processor is XNNPACK."""
    return framework.call(model, "AUTO")


def builtin(framework: Adapter, model: LiteModel, example: tuple[Any, ...]) -> Any:
    """Run LiteRT's own kernels, without a delegate."""
    return framework.call(model, "BUILTIN_WITHOUT_DEFAULT_DELEGATES")


def reference(framework: Adapter, model: LiteModel, example: tuple[Any, ...]) -> Any:
    """Run LiteRT's reference kernels, which are slow and simple."""
    return framework.call(model, "BUILTIN_REF")


@dataclass
class LiteModel:
    """A file that was opened.

    inputs, outputs: name in the signature -> what LiteRT says about the tensor.
    signature: name of the signature; "" when the file has none. others: names of the other signatures.
    real: whether it takes and returns real numbers where the file has quantised ones.
    """

    path: Path
    inputs: dict[str, Detail]
    outputs: dict[str, Detail]
    signature: str
    others: tuple[str, ...]
    real: bool = False

    def given(self, name: str, array: Any) -> Any:
        """An input as the file takes it."""
        detail = self.inputs[name]
        return quantised(array, detail) if self.real and is_quantised(detail) else array

    def returned(self, name: str, array: Any) -> Any:
        """An output as it is told."""
        detail = self.outputs[name]
        wide = self.real and is_quantised(detail)
        return dequantised(array, detail["quantization_parameters"]) if wide else array


class Adapter(ModelFile, OnArrays):
    name = "tflite"
    title = "TensorFlow Lite file"
    runtime = "litert"
    shortens = True
    extra = "litert"
    needs = {"ai-edge-litert": "ai_edge_litert"}
    modes = {"xnnpack": xnnpack, "builtin": builtin, "reference": reference}
    implicit_mode = "xnnpack"
    writes_onnx = True
    channels_last = True

    def __init__(self, threads: int, device: str) -> None:
        from ai_edge_litert import interpreter

        self.litert = interpreter
        self.threads = threads

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if not path.is_file():
            return False
        with reading.opened(path) as file:
            return file.read(8)[4:] == b"TFL3"

    @classmethod
    def check(cls, path: Path) -> None:
        with reading.opened(path) as file:
            root = int.from_bytes(file.read(4), "little")
        if root + 4 > path.stat().st_size:
            raise UsageError(f"{path.name}: this TensorFlow Lite file is truncated: its root is at byte {root}")

    def interpreter(self, path: Path, kernels: str, **more: Any) -> Any:
        """A new interpreter. kernels: the name of an OpResolverType. more: arguments of LiteRT."""
        resolver = getattr(self.litert.OpResolverType, kernels)
        return self.litert.Interpreter(
            model_path=str(path), num_threads=self.threads, experimental_op_resolver_type=resolver, **more
        )

    def open(self, path: Path, options: Mapping[str, Any], float64: bool) -> LiteModel:
        refuse_float64(float64)
        interpreter = self.interpreter(path, "BUILTIN_WITHOUT_DEFAULT_DELEGATES")
        signatures = interpreter.get_signature_list()
        chosen = choose(list(signatures), options.get("signature"))
        if not chosen:
            inputs = {detail["name"]: detail for detail in interpreter.get_input_details()}
            outputs = {detail["name"]: detail for detail in interpreter.get_output_details()}
            return LiteModel(path, inputs, outputs, "", (), bool(options.get("real")))
        runner = interpreter.get_signature_runner(chosen)
        # The file orders the names of a signature; the runner's own mappings may have another order.
        inputs, outputs = runner.get_input_details(), runner.get_output_details()
        return LiteModel(
            path,
            {name: inputs[name] for name in signatures[chosen]["inputs"]},
            {name: outputs[name] for name in signatures[chosen]["outputs"]},
            chosen,
            tuple(name for name in signatures if name != chosen),
            bool(options.get("real")),
        )

    def call(self, model: LiteModel, kernels: str) -> Any:
        """The file as a function of its inputs."""
        interpreter = self.interpreter(model.path, kernels)
        if model.others:
            return self._call_signature(model, interpreter)
        places = [detail["index"] for detail in model.inputs.values()]
        results = {name: detail["index"] for name, detail in model.outputs.items()}
        shapes: list[tuple[int, ...]] = []

        def run(*inputs: Array) -> dict[str, Array]:
            wanted = [array.shape for array in inputs]
            if wanted != shapes:
                for place, shape in zip(places, wanted):
                    interpreter.resize_tensor_input(place, shape, strict=True)
                interpreter.allocate_tensors()
                shapes[:] = wanted
            for name, place, array in zip(model.inputs, places, inputs):
                interpreter.set_tensor(place, model.given(name, array))
            interpreter.invoke()
            return {name: model.returned(name, interpreter.get_tensor(index)) for name, index in results.items()}

        return run

    def _call_signature(self, model: LiteModel, interpreter: Any) -> Any:
        runner = interpreter.get_signature_runner(model.signature)

        def run(*inputs: Array) -> dict[str, Array]:
            outputs = runner(**{name: model.given(name, array) for name, array in zip(model.inputs, inputs)})
            return {name: model.returned(name, outputs[name]) for name in model.outputs}

        return run

    def signature(self, model: LiteModel) -> Signature:
        inputs = tuple(_tensor(name, detail, model.real) for name, detail in model.inputs.items())
        outputs = tuple(_tensor(name, detail, model.real) for name, detail in model.outputs.items())
        return Signature(inputs, outputs, model.signature, model.others)

    def random_operators(self, model: LiteModel) -> list[str]:
        interpreter = self.interpreter(model.path, "BUILTIN_WITHOUT_DEFAULT_DELEGATES")
        names = [each["op_name"] for each in interpreter._get_ops_details()]
        return [name for name in names if "RANDOM" in name.upper() or name == "MULTINOMIAL"]

    def traced(self, model: LiteModel, inputs: Mapping[str, Any]) -> Traced:
        from xverify.formats._tflite_nodes import traced

        return traced(self, model, inputs)

    def write_onnx(self, model: LiteModel, inputs: Mapping[str, Any], path: Path) -> dict[str, str]:
        from xverify.formats._tflite_nodes import write_onnx

        return write_onnx(self, model, inputs, path)

    def node_values(
        self, model: LiteModel, inputs: Mapping[str, Any], folder: Path, graph: Path | None = None
    ) -> dict[str, str]:
        from xverify.formats._tflite_nodes import node_values

        return node_values(self, model, inputs, folder)

    def precision(self, model: LiteModel) -> Precision:
        interpreter = self.interpreter(model.path, "BUILTIN_WITHOUT_DEFAULT_DELEGATES")
        if not hasattr(interpreter, "_get_ops_details"):
            return Precision()
        return tflite_precision.precision(interpreter.get_tensor_details(), interpreter._get_ops_details())

    def with_weights(self, model: LiteModel, change: Change, folder: Path) -> LiteModel | None:
        content = model.path.read_bytes()
        changed = bytearray(content)
        weights = self._weights_in(content)
        for place, array in change(weights).items():
            changed[int(place) : int(place) + array.nbytes] = array.tobytes()
        # An interpreter may still read an earlier one.
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".tflite", delete=False) as file:
            file.write(changed)
        return replace(model, path=Path(file.name)) if weights else None

    def _weights_in(self, content: bytes) -> dict[str, Array]:
        """The float32 weights of a file: the place of the first byte, in decimal digits -> array.

        content: of the file. Interpreters use weights where they lie in it, so the address of an array tells its place. A value is
        no weight when it lies elsewhere.
        """
        interpreter = self.litert.Interpreter(
            model_content=content, experimental_op_resolver_type=self.litert.OpResolverType.BUILTIN_REF
        )
        begin = np.frombuffer(content, np.uint8).ctypes.data
        found = {}
        for detail in interpreter.get_tensor_details():
            try:
                array = interpreter.tensor(detail["index"])()
            except ValueError:
                continue  # a value that is computed has no data before that
            if isinstance(array, np.ndarray) and array.dtype == np.float32:
                place = array.ctypes.data - begin
                if 0 <= place <= len(content) - array.nbytes:
                    found[str(place)] = array.copy()
        return found

    def stored(self, model: LiteModel) -> Stored:
        interpreter = self.interpreter(model.path, "BUILTIN_REF")
        arrays, quantised = {}, {}
        for detail in interpreter.get_tensor_details():
            try:
                array = np.array(interpreter.get_tensor(detail["index"]))
            except ValueError:
                continue  # a value that is computed has no data before that
            scales = np.asarray(detail["quantization_parameters"]["scales"])
            if scales.size and array.dtype.kind in "iu":
                quantised[detail["name"]] = array.dtype.name
                array = dequantised(array, detail["quantization_parameters"])
            arrays[detail["name"]] = array
        return Stored(arrays, (), quantised)

    def cause(self, error: Exception) -> tuple[type[SubjectError], str]:
        text = " ".join(str(error).split())
        match = re.search(r"Encountered unresolved custom op: (\w+)", text)
        if match:
            return Unsupported, f"operator {match[1]} is a custom operator, which is not in this file"
        match = re.search(r"Didn't find op for builtin opcode '(\w+)' version '(\d+)'", text)
        if match:
            return Unsupported, f"operator {match[1]} of version {match[2]} is newer than this LiteRT"
        if "Select TensorFlow op" in text or "Flex" in text:
            return Unsupported, "it has operators of TensorFlow (Flex), which LiteRT does not have"
        return Failed, first_line(error)

    def environment(self) -> dict[str, object]:
        import importlib.metadata

        return {"litert": importlib.metadata.version("ai-edge-litert"), "threads": self.threads}


def choose(known: list[str], wanted: str | None) -> str:
    """The signature that is wanted; without a wish, the usual one or the first; "" when there is none. Raises Failed."""
    if wanted and wanted not in known:
        raise Failed(f"there is no signature {wanted!r}; its signatures are {', '.join(known) or 'unnamed'}")
    if wanted:
        return wanted
    return DEFAULT if DEFAULT in known else next(iter(known), "")


def dequantised(array: Array, parameters: Mapping[str, Any]) -> Array:
    """The values that whole numbers stand for. parameters: scales and zero points, one or one for each index of an axis."""
    scales, zeros = (np.asarray(parameters[name], np.float32) for name in ("scales", "zero_points"))
    shape = (
        [-1 if axis == parameters["quantized_dimension"] else 1 for axis in range(array.ndim)]
        if scales.size > 1
        else [1]
    )
    values: Array = (array.astype(np.float32) - zeros.reshape(shape)) * scales.reshape(shape)
    return values


def is_quantised(detail: Mapping[str, Any]) -> bool:
    """Whether the whole numbers of a tensor stand for real ones."""
    text = detail["dtype"] in (np.bytes_, np.object_, np.str_)
    whole = not text and np.dtype(detail["dtype"]).kind in "iu"
    return whole and bool(np.size(detail["quantization_parameters"]["scales"]))


def quantised(array: Array, detail: Detail) -> Array:
    """The whole numbers of a tensor that are nearest to real ones."""
    parameters, limits = detail["quantization_parameters"], np.iinfo(detail["dtype"])
    scale, zero = (float(np.asarray(parameters[name]).reshape(-1)[0]) for name in ("scales", "zero_points"))
    steps = np.round(np.asarray(array, np.float64) / scale) + zero
    found: Array = np.clip(steps, limits.min, limits.max).astype(detail["dtype"])
    return found


def _tensor(name: str, detail: Detail, real: bool) -> Tensor:
    shape: Any = detail.get("shape_signature", detail["shape"])
    if not len(shape):  # a file without dynamic dimensions has no shape_signature
        shape = detail["shape"]
    dtype = "string" if detail["dtype"] in (np.bytes_, np.object_, np.str_) else np.dtype(detail["dtype"]).name
    whole = is_quantised(detail)
    dtype = "float32" if whole and real else dtype
    return Tensor(name, tuple(None if size < 0 else int(size) for size in shape), dtype, whole)
