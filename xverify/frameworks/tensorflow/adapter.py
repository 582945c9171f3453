"""TensorFlow with Keras 3, eager and as a graph. Images are fed in its native layout, N,H,W,C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from xverify.errors import Failed
from xverify.framework.adapter import Array
from xverify.framework.objective import NOT_DIFFERENTIABLE
from xverify.framework.own_mistake import OwnMistake
from xverify.framework.own_step import Step
from xverify.framework.structures import without_classes
from xverify.framework.training import Batch, Training
from xverify.frameworks.keras.base import Gradients, Keras, Pass, canonical, native
from xverify.frameworks.keras.learner import learner
from xverify.frameworks.tensorflow.base import OnTensorFlow
from xverify.workload.optimizers import Optimizer


def eager(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Run the model operation by operation."""
    return framework.forward(model)


def graph(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Trace the model into a graph."""
    return framework.tf.function(_known(framework, model))


def xla(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Trace the model into a graph, and compile it with XLA."""
    return framework.tf.function(_known(framework, model), jit_compile=True)


def _known(framework: Adapter, model: Any) -> Callable[..., Any]:
    """The model as a function that returns dictionaries in place of dataclasses, which a graph cannot return."""
    forward = framework.forward(model)
    plain = framework.tf.autograph.experimental.do_not_convert(without_classes)
    return lambda *inputs: plain(forward(*inputs))


class Adapter(OnTensorFlow, Keras):
    name = "tensorflow"
    needs = {"tensorflow-cpu": "tensorflow"}
    libraries: ClassVar[tuple[str, ...]] = ("tensorflow", "keras")
    modes = {"eager": eager, "graph": graph, "xla": xla, "while": graph}
    mode_options = {"while": {"loop": "while"}}
    default_modes: ClassVar[tuple[str, ...]] = ("eager", "graph")
    trains = True
    takes_recipe = True
    mixed: ClassVar[tuple[str, ...]] = ("bfloat16", "float16")
    weights_route = "onnx"
    backend = "tensorflow"
    forks = True

    def to_native(self, array: Array, layout: str | None) -> Any:
        return self.tf.constant(native(array, layout))

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return canonical(self.array(tensor), layout)

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        def wrap(function: Callable[..., Any], variables: Sequence[Any]) -> Any:
            if mode == "eager":
                return function
            return self.tf.function(function, jit_compile=True if mode == "xla" else None)

        return learner(self, model, wrap, optimizer, match)

    def watched_products(self) -> AbstractContextManager[dict[str, int]]:
        from xverify.frameworks.tensorflow.products import watched_products

        return watched_products()

    def own_step(self, step: Step, mode: str) -> Step:
        if mode == "eager":
            return step
        compiled: Step = self.tf.function(step, jit_compile=True if mode == "xla" else None)
        return compiled

    def own_mistake(
        self, mistake: OwnMistake, model: Any, optimizers: Mapping[str, Any]
    ) -> AbstractContextManager[None]:
        from xverify.frameworks.tensorflow.own_mistakes import planted

        return planted(self, mistake, model, optimizers)

    @contextmanager
    def uncompiled(self) -> Iterator[None]:
        before = self.tf.config.functions_run_eagerly()
        self.tf.config.run_functions_eagerly(True)
        try:
            yield
        finally:
            self.tf.config.run_functions_eagerly(before)

    def differentiate(self, asked: Pass) -> Gradients:
        tf = self.tf
        with tf.GradientTape() as self.tape:
            outputs = asked.forward(*asked.batch[:-1])
            loss = self.loss(outputs, asked.batch[-1])
            scaled = asked.scaled(loss)
            nodes = list(asked.tensors())
        # The tape knows the tf.Variable inside a Keras variable.
        plain = [variable if isinstance(variable, tf.Variable) else variable.value for variable in asked.variables]
        found = self.tape.gradient(scaled, [*nodes, *plain])
        if all(gradient is None for gradient in found):
            raise Failed(NOT_DIFFERENTIABLE)
        return Gradients(outputs, loss, found[: len(nodes)], found[len(nodes) :])

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        tf = self.tf
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=logits))

    def dense(self, gradient: Any) -> Any:
        """The gradient of an embedding consists of the rows that were used; the result has all rows."""
        return self.tf.convert_to_tensor(gradient)

    def alias(self, tensor: Any) -> Any:
        node = self.tf.identity(tensor)
        self.tape.watch(node)
        return node
