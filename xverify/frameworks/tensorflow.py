"""TensorFlow with Keras 3: eager, and as a graph. Images are fed in its native layout, N,H,W,C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xverify.framework.adapter import Batch, Training
from xverify.frameworks._keras import Keras, Learner, canonical, native
from xverify.workload.optimizers import Optimizer


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
    default_modes = ("eager", "graph")
    trains = True
    weights_route = "onnx"
    backend = "tensorflow"

    def __init__(self, threads: int, device: str) -> None:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        self.tf = tf
        self.threads = threads
        self.asynchronous = device != "cpu"

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        variables = {**super().variables(threads, device), "TF_CPP_MIN_LOG_LEVEL": "2"}
        if device == "cpu":
            variables["CUDA_VISIBLE_DEVICES"] = ""
        return variables

    def to_native(self, array: np.ndarray, layout: str | None) -> Any:
        return self.tf.constant(native(array, layout))

    def to_numpy(self, tensor: Any, layout: str | None) -> np.ndarray:
        return canonical(self.tf.convert_to_tensor(tensor).numpy(), layout)

    def wait(self, outputs: Any) -> None:
        """On the CPU a call returns computed tensors, and nothing runs on; a device is waited for at the edges of a block."""
        if self.asynchronous and isinstance(outputs, tuple) and not outputs:  # `==` would compare tensors
            self.tf.test.experimental.sync_devices()

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        def wrap(function: Any) -> Any:
            return (
                function if mode == "eager" else self.tf.function(function, jit_compile=True if mode == "xla" else None)
            )

        return Learner(self, model, wrap, optimizer, match)

    def differentiate(
        self, forward: Any, batch: Batch, variables: Sequence[Any], tensors: Callable[[], Sequence[Any]] = list
    ) -> tuple[Any, Any, list[Any], list[Any]]:
        tf = self.tf
        with tf.GradientTape() as self.tape:
            logits = forward(*batch[:-1])
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch[-1], logits=logits))
            nodes = list(tensors())
        # A Keras variable holds the one that the tape knows.
        plain = [variable if isinstance(variable, tf.Variable) else variable.value for variable in variables]
        found = self.tape.gradient(loss, [*nodes, *plain])
        return logits, loss, list(found[: len(nodes)]), list(found[len(nodes) :])

    def dense(self, gradient: Any) -> Any:
        """An embedding's gradient comes as the rows that were used."""
        return self.tf.convert_to_tensor(gradient)

    def alias(self, tensor: Any) -> Any:
        node = self.tf.identity(tensor)
        self.tape.watch(node)
        return node

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        count = getattr(call, "experimental_get_tracing_count", None)  # of a tf.function
        return count() if count else None

    def environment(self) -> dict[str, Any]:
        import keras

        return {"tensorflow": self.tf.__version__, "keras": keras.__version__, "threads": self.threads}
