"""TensorFlow with Keras 3, eager and as a graph. Images are fed in its native layout, N,H,W,C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from xverify.errors import Failed, Unsupported
from xverify.framework.adapter import Array, Source
from xverify.framework.objective import NOT_DIFFERENTIABLE
from xverify.framework.own_mistake import OwnMistake
from xverify.framework.own_step import BoundStep, Step, optimizers_by_name
from xverify.framework.structures import without_classes
from xverify.framework.training import Batch, Training
from xverify.frameworks.keras.base import Gradients, Keras, Pass, canonical, native
from xverify.frameworks.keras.learner import learner
from xverify.frameworks.tensorflow.base import OnTensorFlow
from xverify.weights import tensorflow as weights
from xverify.workload.optimizers import Optimizer

if TYPE_CHECKING:
    from xverify.frameworks.tensorflow.ranks import Replicas  # it imports TensorFlow


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
    plans: ClassVar[tuple[str, ...]] = ("ddp",)
    rank_modes = ("eager", "graph")
    ranks_are_devices = True

    replicated: Replicas | None = None  # those that train together

    def join(
        self, rank: int, count: int, plan: str, meeting: str, seconds: float, shares: Sequence[float] = ()
    ) -> None:
        from xverify.frameworks.tensorflow.ranks import Replicas

        self.replicated, self.replicas = Replicas(shares), count

    def making(self) -> AbstractContextManager[object]:
        return nullcontext() if self.replicated is None else self.replicated.strategy.scope()

    def of_rank(self, rank: int) -> AbstractContextManager[object]:
        return nullcontext() if self.replicated is None else self.replicated.showing(rank)

    def parallelize(self, model: Any, plan: str, source: Source) -> list[str]:
        from xverify.frameworks.tensorflow.ranks import norms_of

        return [each.name for each in norms_of(model) if not each.synchronized]

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        with self.making():
            return super().build(source, options, float64)

    def save_weights(self, model: Any) -> dict[str, Array]:
        if self.replicated is None:
            return super().save_weights(model)
        return {each.name: weights.canonical(each, self.state_array) for each in weights.named_variables(model)}

    def array(self, tensor: Any) -> Array:
        return super().array(tensor if self.replicated is None else self.replicated.value(tensor))

    def to_native(self, array: Array, layout: str | None) -> Any:
        if self.replicated is not None and isinstance(array, list):
            return self.replicated.joined([self.to_native(each, layout) for each in array])
        return self.tf.constant(native(array, layout))

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return canonical(self.array(tensor), layout)

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        def wrap(function: Callable[..., Any], variables: Sequence[Any]) -> Any:
            return self._in_mode(function if self.replicated is None else self.replicated.run(function), mode)

        if self.replicated is not None:
            from xverify.frameworks.tensorflow.ranks import ReplicatedLearner

            return ReplicatedLearner(self.replicated, self, model, wrap, optimizer, match)
        return learner(self, model, wrap, optimizer, match)

    def watched_products(self) -> AbstractContextManager[dict[str, int]]:
        from xverify.frameworks.tensorflow.products import watched_products

        return watched_products()

    def own_step(self, step: BoundStep, mode: str) -> Step:
        if self.replicated is None:
            return self._in_mode(step, mode)
        optimizers = optimizers_by_name(step.state, step.model, self.is_optimizer)
        unbuilt = [name for name, each in optimizers.items() if not each.built]
        if unbuilt and mode != "eager":
            raise Unsupported(
                "a graph on several devices cannot make the variables of an optimizer: call optimizer.build(variables) "
                "in train_state"
            )
        return self._in_mode(self.replicated.run(step), mode)

    def _in_mode(self, function: Callable[..., Any], mode: str) -> Any:
        """A function as it runs in a mode."""
        if mode == "eager":
            return function
        return self.tf.function(function, jit_compile=True if mode == "xla" else None)

    def watched_updates(self, model: Any) -> AbstractContextManager[list[Any]]:
        if self.replicated is None:
            return super().watched_updates(model)
        return self.replicated.watched_updates(self, model)

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
        with tf.GradientTape() as tape:  # a local name, because replicas take turns in a step
            self.tape = tape
            outputs = asked.forward(*asked.batch[:-1])
            loss = self.loss(outputs, asked.batch[-1])
            scaled = asked.scaled(loss)
            nodes = list(asked.tensors())
        # The tape knows the tf.Variable inside a Keras variable.
        plain = [variable if isinstance(variable, tf.Variable) else variable.value for variable in asked.variables]
        found = tape.gradient(scaled, [*nodes, *plain])
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
