"""TensorFlow with Keras 3: eager, and as a graph. Images are fed in its native layout, N,H,W,C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xverify.frameworks._keras import Keras, canonical, native


def eager(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.forward(model)


def graph(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.tf.function(framework.forward(model))


def xla(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.tf.function(framework.forward(model), jit_compile=True)


class Adapter(Keras):
    name = "tensorflow"
    needs = {"tensorflow-cpu": "tensorflow"}
    modes = {"eager": eager, "graph": graph, "xla": xla, "while": graph}
    mode_options = {"while": {"loop": "while"}}
    usual = ("eager", "graph")
    weights_route = "onnx"
    backend = "tensorflow"

    def __init__(self, threads: int, device: str) -> None:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        self.tf = tf
        self.threads = threads

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        variables = {**super().variables(threads, device), "TF_CPP_MIN_LOG_LEVEL": "2"}
        if device == "cpu":
            variables["CUDA_VISIBLE_DEVICES"] = ""
        return variables

    def to_native(self, array: np.ndarray, layout: str | None) -> Any:
        return self.tf.constant(native(array, layout))

    def to_numpy(self, tensor: Any, layout: str | None) -> np.ndarray:
        return canonical(tensor.numpy(), layout)

    def wait(self, outputs: Any) -> None:
        """On the CPU a call returns computed tensors; whatever else runs is waited for at the edges of a block."""
        if isinstance(outputs, tuple) and not outputs:  # `==` would ask TensorFlow to compare: 0.1 ms a call
            self.tf.test.experimental.sync_devices()

    def traces(self, call: Callable[..., Any]) -> int | None:
        count = getattr(call, "experimental_get_tracing_count", None)  # of a tf.function
        return count() if count else None

    def environment(self) -> dict[str, Any]:
        import keras

        return {"tensorflow": self.tf.__version__, "keras": keras.__version__, "threads": self.threads}
