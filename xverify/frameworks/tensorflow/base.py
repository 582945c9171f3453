"""What the adapters and the formats that run on TensorFlow share: threads, waiting, and the count of graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xverify.framework.adapter import Array
from xverify.framework.runner import Runner


class OnTensorFlow(Runner):
    """The base class of runners whose tensors are TensorFlow's."""

    copies = 3.0

    def __init__(self, threads: int, device: str) -> None:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        self.tf, self.threads = tf, threads
        self.blocking = device == "cpu" and type(self).wait is OnTensorFlow.wait

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        variables = {**super().variables(threads, device), "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}
        if device == "cpu":
            variables["CUDA_VISIBLE_DEVICES"] = ""
        return variables

    def array(self, tensor: Any) -> Array:
        """A tensor as an array; numpy itself has no bfloat16, whose values float32 holds exactly."""
        array: Array = self.tf.convert_to_tensor(tensor).numpy()
        return array.astype("float32") if array.dtype.name == "bfloat16" else array

    def wait(self, outputs: Any) -> None:
        """On the CPU a call returns computed tensors. Other devices are waited for once at the start and the end of a block."""
        if not self.blocking and isinstance(outputs, tuple) and not outputs:  # `outputs == ()` would compare tensors
            self.tf.test.experimental.sync_devices()

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        count = getattr(call, "experimental_get_tracing_count", None)  # a method of tf.function
        return int(count()) if count else None

    def environment(self) -> dict[str, object]:
        import keras

        return {"tensorflow": self.tf.__version__, "keras": keras.__version__, "threads": self.threads}
