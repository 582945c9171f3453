"""TensorFlow with Keras 3: eager, and as a graph. Images are fed in its native layout, N,H,W,C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xverify.framework import Framework, Source
from xverify.weights import tensorflow as weights

NATIVE_LAYOUT = {"NCHW": "NHWC", "NCL": "NLC"}


def eager(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.forward(model)


def graph(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.tf.function(framework.forward(model))


def xla(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.tf.function(framework.forward(model), jit_compile=True)


class Adapter(Framework):
    name = "tensorflow"
    needs = {"tensorflow-cpu": "tensorflow"}
    modes = {"eager": eager, "graph": graph, "xla": xla, "while": graph}
    mode_options = {"while": {"loop": "while"}}
    usual = ("eager", "graph")
    weights_route = "onnx"

    def __init__(self, threads: int, device: str) -> None:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        self.tf = tf
        self.threads = threads

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        variables = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}
        if device == "cpu":
            variables["CUDA_VISIBLE_DEVICES"] = ""
        return variables

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        import keras

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

    def merges(self, model: Any) -> dict[str, tuple[str, ...]]:
        return weights.merges(model)

    def to_native(self, array: np.ndarray, layout: str | None) -> Any:
        if layout in NATIVE_LAYOUT:
            array = array.transpose([layout.index(axis) for axis in NATIVE_LAYOUT[layout]])
        return self.tf.constant(np.array(array, order="C"))

    def to_numpy(self, tensor: Any, layout: str | None) -> np.ndarray:
        array: np.ndarray = tensor.numpy()
        if layout in NATIVE_LAYOUT:
            array = array.transpose([NATIVE_LAYOUT[layout].index(axis) for axis in layout])
        return array

    def wait(self, outputs: Any) -> None:
        """On the CPU a call returns computed tensors; whatever else runs is waited for at the edges of a block."""
        if outputs == ():
            self.tf.test.experimental.sync_devices()

    def environment(self) -> dict[str, Any]:
        import keras

        return {"tensorflow": self.tf.__version__, "keras": keras.__version__, "threads": self.threads}
