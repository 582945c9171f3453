"""ONNX files: weights are the graph's initializers, which have the names of the parameters they were exported from."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .canonical import Arrays, check
from .room import Room

SUFFIXES = (".onnx",)
TEMPLATE = True  # save_file takes the file that has the graph


def from_model(model: Any) -> Arrays:
    """The floating-point initializers of a ModelProto, without constants to which the exporter gave a name."""
    from onnx import numpy_helper

    named = (tensor for tensor in model.graph.initializer if not tensor.name.startswith("onnx::"))
    arrays = {tensor.name: np.array(numpy_helper.to_array(tensor)) for tensor in named}
    return {name: array for name, array in arrays.items() if array.dtype.kind == "f"}


def to_model(model: Any, arrays: Arrays) -> None:
    """Replace the initializers of a ModelProto in place. Names and shapes must have been checked."""
    from onnx import numpy_helper

    for tensor in model.graph.initializer:
        if tensor.name in arrays:
            tensor.CopyFrom(numpy_helper.from_array(np.array(arrays[tensor.name], order="C"), tensor.name))


def add_unused(model: Any, arrays: Arrays) -> None:
    """Add weights to a ModelProto that no node of it uses, so that the file holds every weight of the model."""
    from onnx import numpy_helper

    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(array, order="C"), name))


def load_file(path: Path, trust: bool = False, most: float | None = None) -> Arrays:
    """Read the weights of an ONNX file. trust: without effect, since these files cannot run code. most: see ``room.Room``."""
    return from_model(load_model(path, most))


def load_model(path: Path, most: float | None = None) -> Any:
    """The ModelProto of a file with its external data. most: see ``room.Room``.

    Raises WeightsError when the initializers take more than there is room for, or when two have the same name.
    """
    import onnx
    from onnx import external_data_helper as external

    model = onnx.load(path, load_external_data=False)
    tensors = list(model.graph.initializer)
    names = [tensor.name for tensor in tensors]
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise WeightsError(f"{path}: two initializers have the name {twice!r}")
    beside = [
        path.parent / external.ExternalDataInfo(tensor).location
        for tensor in tensors
        if external.uses_external_data(tensor)
    ]
    room = Room(path, most, beside)
    for tensor in tensors:
        room.take(math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    external.load_external_data_for_model(model, str(path.parent))
    return model


def save_file(arrays: Arrays, path: Path, template: Path | None = None) -> None:
    """Write an existing ONNX file with other weights, because weights alone do not define the graph.

    template: the existing file; when omitted, it is the one that is written.
    Raises WeightsError when the file does not exist or the weights do not fit it.
    """
    import onnx

    template = template or path
    if not template.is_file():
        raise WeightsError(
            f"{template}: weights alone make no graph; name the model with --model, or an existing exported file"
        )
    model = onnx.load(template)
    check(arrays, {name: array.shape for name, array in from_model(model).items()}, source="weights")
    to_model(model, arrays)
    onnx.save(model, path)
