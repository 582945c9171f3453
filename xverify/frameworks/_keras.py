"""Keras 3 on any of its backends: what the adapters share. All of them build the folder's tensorflow.py; images are N,H,W,C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from xverify.errors import Unsupported
from xverify.framework import Framework, Source
from xverify.weights import tensorflow as weights

NATIVE_LAYOUT = {"NCHW": "NHWC", "NCL": "NLC"}


class Keras(Framework):
    """An adapter but for what is the backend's own: tensors, waiting, threads."""

    file = "tensorflow"
    layer_method = "call"
    channels_last = True
    backend: ClassVar[str]

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        return {**super().variables(threads, device), "KERAS_BACKEND": cls.backend}

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        import keras

        if float64 and not keeps_float64():
            raise Unsupported(f"Keras {keras.__version__} makes float32 of float64 on {self.backend}")
        previous = keras.config.floatx()
        keras.config.set_floatx("float64" if float64 else "float32")
        keras.config.set_dtype_policy("float64" if float64 else "float32")
        try:
            return self.define(source, options)
        finally:
            keras.config.set_floatx(previous)
            keras.config.set_dtype_policy(previous)

    def forward(self, model: Any) -> Any:
        """The model as a function of its inputs, in inference mode."""
        import keras

        if not isinstance(model, keras.Model):
            return model
        if isinstance(model, keras.src.models.functional.Functional):
            return lambda *inputs: model(inputs[0] if len(inputs) == 1 else list(inputs), training=False)
        return lambda *inputs: model(*inputs, training=False)

    def load_weights(self, model: Any, arrays: dict[str, np.ndarray]) -> None:
        weights.to_model(model, arrays)

    def save_weights(self, model: Any) -> dict[str, np.ndarray]:
        return weights.from_model(model)

    def layers(self, model: Any) -> dict[str, list[Any]]:
        return weights.layers(model)

    def merges(self, model: Any) -> dict[str, tuple[str, ...]]:
        return weights.merges(model)


def keeps_float64() -> bool:
    """Whether a product of float64 is float64: Keras' rules of promotion have no 64 bits on backends but TensorFlow."""
    import keras

    one = keras.ops.ones((1, 1), "float64")
    return str(keras.backend.standardize_dtype(keras.ops.matmul(one, one).dtype)) == "float64"


def native(array: np.ndarray, layout: str | None) -> np.ndarray:
    """A canonical array in Keras' layout, in memory of its own."""
    if layout in NATIVE_LAYOUT:
        array = array.transpose([layout.index(axis) for axis in NATIVE_LAYOUT[layout]])
    return np.array(array, order="C")


def canonical(array: np.ndarray, layout: str | None) -> np.ndarray:
    """An array in Keras' layout in the canonical one."""
    if layout in NATIVE_LAYOUT:
        array = array.transpose([NATIVE_LAYOUT[layout].index(axis) for axis in layout])
    return array
