"""What the formats that run on OpenVINO share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from xverify.errors import Failed, SubjectError, Unsupported
from xverify.formats import _openvino_precision as openvino_precision
from xverify.formats._bfloat16 import Bits, to_bits
from xverify.formats._openvino_nodes import Names, traced
from xverify.framework.adapter import Array
from xverify.framework.filenodes import Traced
from xverify.framework.modelfile import Change, ModelFile, Natives, Signature, Tensor, by_name
from xverify.framework.runner import OnArrays, refuse_float64
from xverify.results.precision import Precision
from xverify.weights.stored import Stored

# OpenVINO's names of dtypes that numpy calls otherwise.
_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "boolean": "bool",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "i4": "int4",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "u4": "uint4",
    "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip


def float32(framework: OnOpenVINO, model: Any, example: tuple[Any, ...]) -> Any:
    """Compute what the file has in float32 in float32."""
    return framework.compile(model, {"INFERENCE_PRECISION_HINT": "f32"})


def default(framework: OnOpenVINO, model: Any, example: tuple[Any, ...]) -> Any:
    """Compute in the precision that OpenVINO chooses for this processor: bfloat16 or float16 where it is faster."""
    return framework.compile(model, {})


class OnOpenVINO(ModelFile, OnArrays):
    """The base class of formats that run on OpenVINO."""

    runtime = "openvino"
    extra = "openvino"
    needs = {"openvino": "openvino"}
    modes: ClassVar = {"float32": float32, "default": default}
    implicit_mode = "float32"
    shortens = True

    def __init__(self, threads: int, device: str) -> None:
        import openvino

        self.openvino = openvino
        self.core = openvino.Core()
        self.threads = threads

    def open(self, path: Path, options: Mapping[str, Any], float64: bool) -> Any:
        refuse_float64(float64)
        return self.core.read_model(str(path))

    def compile(self, model: Any, properties: Mapping[str, str]) -> Any:
        """The model as a function of its inputs. properties: of OpenVINO, beside threads."""
        settings = {"INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": "1", **properties}
        request = self.core.compile_model(model, "CPU", settings).create_infer_request()
        names = [Names.result(port) for port in model.outputs]
        narrow = [_dtype(port) == "bfloat16" for port in model.outputs]

        def run(*inputs: Any) -> Natives:
            request.infer(list(inputs), share_inputs=True, share_outputs=True)
            found = (request.get_output_tensor(i).data for i in range(len(names)))
            # The request uses the memory of its outputs again. OpenVINO shows bfloat16 as numpy's float16.
            return {
                name: Bits(array.view(np.uint16).copy()) if is_narrow else array.copy()
                for name, is_narrow, array in zip(names, narrow, found)
            }

        return run

    def signature(self, model: Any) -> Signature:
        return Signature(tuple(map(_tensor, model.inputs)), tuple(map(_tensor, model.outputs)))

    def traced(self, model: Any, inputs: Mapping[str, Any]) -> Traced:
        return traced(self, model, inputs)

    def precision(self, model: Any) -> Precision:
        return openvino_precision.precision(model)

    def with_weights(self, model: Any, change: Change, folder: Path) -> Any:
        constants = [node for node in model.get_ops() if node.get_type_name() == "Constant"]
        # One number is a factor or an epsilon of the code rather than a weight.
        weights = {
            str(i): np.array(node.data)
            for i, node in enumerate(constants)
            if _dtype(node.output(0)) == "float32" and node.data.size > 1
        }
        for index, array in change(weights).items():
            changed = self.openvino.opset13.constant(array)
            constants[int(index)].output(0).replace(changed.output(0))
        return model if weights else None

    def stored(self, model: Any) -> Stored:
        constants = (node for node in model.get_ops() if node.get_type_name() == "Constant")
        return by_name({node.get_friendly_name(): np.array(node.data) for node in constants})

    def cause(self, error: Exception) -> tuple[type[SubjectError], str]:
        return explain(str(error))

    def narrow(self, array: Array, dtype: str) -> Any:
        if dtype != "bfloat16":
            return super().narrow(array, dtype)
        return self.openvino.Tensor(to_bits(array), self.openvino.Shape(list(array.shape)), self.openvino.Type.bf16)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return tensor.as_float32() if isinstance(tensor, Bits) else np.asarray(tensor)

    def environment(self) -> dict[str, object]:
        return {"openvino": self.openvino.__version__, "threads": self.threads}


def explain(text: str) -> tuple[type[SubjectError], str]:
    """The kind and the cause of an error of OpenVINO, whose texts begin with the places in its source."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Exception from", "Check '"))] or lines[:1]
    match = re.search(r"(?:No conversion rule found for|does not support the following ONNX) operations: *(.+)", text)
    if match:
        return Unsupported, f"operators that it does not have: {match[1]}"
    if "Unsupported" in text or "not supported" in text or "Cannot create" in text:
        return Unsupported, " ".join(lines)
    return Failed, " ".join(lines)


def _dtype(port: Any) -> str:
    name = str(port.element_type.get_type_name())
    return _DTYPES.get(name, name)


def _tensor(port: Any) -> Tensor:
    rank = port.partial_shape.rank
    shape = None
    if rank.is_static:
        shape = tuple(dim.get_length() if dim.is_static else None for dim in port.partial_shape)
    return Tensor(Names.result(port), shape, _dtype(port))
