"""ONNX files: weights are the graph's initializers, which have the names of the parameters they were exported from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array, Arrays, Streamed, check
from .npz import Place
from .room import Room

SUFFIXES = (".onnx",)
TEMPLATE = True  # save_file takes the file that has the graph


class OfModel(Streamed):
    """The floating-point initializers of a ModelProto, without constants to which the exporter gave a name.

    folder: where the files of its external data are, which are read when an array is looked up.
    """

    def __init__(self, model: Any, folder: Path = Path()) -> None:
        from onnx import helper

        self.folder = folder
        tensors = [tensor for tensor in model.graph.initializer if not tensor.name.startswith("onnx::")]
        self.dtypes = {tensor.name: helper.tensor_dtype_to_np_dtype(tensor.data_type) for tensor in tensors}
        self.names = self.tensors = {tensor.name: tensor for tensor in tensors if self.dtypes[tensor.name].kind == "f"}

    def __getitem__(self, name: str) -> Array:
        from onnx import external_data_helper as external
        from onnx import numpy_helper

        tensor = self.tensors[name]
        if not external.uses_external_data(tensor):
            return np.array(numpy_helper.to_array(tensor))
        place, shape = external.ExternalDataInfo(tensor), self.shape(name)
        path, count = self.folder / place.location, math.prod(shape)
        array = np.memmap(path, self.dtypes[name], "r", int(place.offset or 0), (count,))
        return np.asarray(array).reshape(shape)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].dims)

    def dtype(self, name: str) -> np.dtype[Any]:
        return self.dtypes[name]


def from_model(model: Any, folder: Path = Path()) -> Arrays:
    """The arrays of ``OfModel``, as a dictionary of copies."""
    return {name: np.array(array) for name, array in OfModel(model, folder).items()}


def to_model(model: Any, arrays: Mapping[str, Array], folder: Path = Path()) -> None:
    """Replace the initializers of a ModelProto in place. Names and shapes must have been checked.

    folder: where the files of its external data are. They are not changed: what has other values there becomes part of the model.
    """
    from onnx import external_data_helper as external
    from onnx import numpy_helper

    present = OfModel(model, folder)
    for tensor in model.graph.initializer:
        if tensor.name not in arrays:
            continue
        array = arrays[tensor.name]
        if external.uses_external_data(tensor) and np.array_equal(present[tensor.name], array):
            continue
        tensor.CopyFrom(numpy_helper.from_array(np.array(array, order="C"), tensor.name))


def shapes(model: Any, names: Container[str]) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the weights of a ModelProto, also of those that are inputs without a value (see ``refer_to``).

    names: of the weights; inputs with other names are inputs of the model.
    """
    arrays = OfModel(model)
    inputs = {
        value.name: tuple(axis.dim_value for axis in value.type.tensor_type.shape.dim)
        for value in model.graph.input
        if value.name in names
    }
    return {**{name: arrays.shape(name) for name in arrays}, **inputs}


def refer_to(model: Any, places: Mapping[str, Place]) -> None:
    """Make weights of a ModelProto external data of another file, which lies in the folder of the model.

    The weights are initializers of the model, or inputs of it: an exporter that leaves out their values makes them inputs.

    places: name of the weight -> where its float32 values are, in C order.
    """
    from onnx import TensorProto
    from onnx import external_data_helper as external

    graph = model.graph
    known = {tensor.name: tensor for tensor in graph.initializer}
    kept = [value for value in graph.input if value.name not in places]
    new = [value.name for value in graph.input if value.name in places]
    del graph.input[:]
    graph.input.extend(kept)
    for name in dict.fromkeys([*new, *known, *places]):
        if name not in places:
            continue
        tensor, place = known.get(name) or graph.initializer.add(), places[name]
        tensor.Clear()
        tensor.name, tensor.data_type = name, TensorProto.FLOAT
        tensor.dims.extend(place.shape)
        tensor.raw_data = b""  # external.set_external_data changes a tensor with raw data only
        external.set_external_data(tensor, place.path.name, place.offset, math.prod(place.shape) * place.dtype.itemsize)
        tensor.ClearField("raw_data")  # onnx.save would write it


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


def save_file(arrays: Mapping[str, Array], path: Path, template: Path | None = None) -> None:
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
