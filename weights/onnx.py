"""ONNX files: weights are the graph's initializers, under the names of the parameters they were exported from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import WeightsError

SUFFIXES = (".onnx",)


def from_model(model: Any) -> dict[str, np.ndarray]:
    """The floating-point initializers of a ModelProto; constants that the exporter named itself are not weights."""
    from onnx import numpy_helper

    return {
        tensor.name: np.array(numpy_helper.to_array(tensor))
        for tensor in model.graph.initializer
        if not tensor.name.startswith("onnx::") and numpy_helper.to_array(tensor).dtype.kind == "f"
    }


def to_model(model: Any, arrays: dict[str, np.ndarray]) -> None:
    """Replace the initializers of a ModelProto in place; names and shapes must have been checked."""
    from onnx import numpy_helper

    for tensor in model.graph.initializer:
        if tensor.name in arrays:
            tensor.CopyFrom(numpy_helper.from_array(np.array(arrays[tensor.name], order="C"), tensor.name))


def load_file(path: Path, trust: bool = False) -> dict[str, np.ndarray]:
    import onnx

    return from_model(onnx.load(path))


def save_file(arrays: dict[str, np.ndarray], path: Path) -> None:
    """Set the weights of an ONNX file that is already there: weights alone do not say what the graph is."""
    import onnx

    from .canonical import check

    if not path.is_file():
        raise WeightsError(
            f"{path}: weights alone make no graph; name the model with --model, or an exported file that is there"
        )
    model = onnx.load(path)
    check(arrays, {name: array.shape for name, array in from_model(model).items()}, source="weights")
    to_model(model, arrays)
    onnx.save(model, path)
