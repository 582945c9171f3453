"""Keras 3 on JAX, compiled and eager. It builds its model from the folder's tensorflow.py.

JAX differentiates and compiles pure functions. So the values of variables become arguments of a function, and the values that the
function gives them become results: ``keras.StatelessScope`` has the values of the variables while the function runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xverify.framework.adapter import Array
from xverify.framework.structures import without_classes
from xverify.framework.training import Batch, Training
from xverify.frameworks.jax.base import Jax
from xverify.frameworks.jax.function import Around, Function, plainly
from xverify.frameworks.keras.base import Gradients, Keras, Pass, canonical, native
from xverify.frameworks.keras.learner import learner
from xverify.weights import tensorflow as weights
from xverify.workload.optimizers import Optimizer


def jit(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Compile the model, with its variables as arguments."""
    forward = framework.forward(model)

    def stateless(values: list[Any], *inputs: Any) -> Any:
        with framework.keras.StatelessScope(list(zip(model.variables, values))):
            return forward(*inputs)

    return framework.compiled(stateless, [variable.value for variable in model.variables])


def eager(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Run the model operation by operation."""
    return framework.forward(model)


class Adapter(Keras, Jax):
    name = "keras-jax"
    needs = {"keras": "keras", "jax": "jax"}
    modes = {"jit": jit, "eager": eager}
    implicit_mode = "jit"
    backend = "jax"
    trains = True
    takes_recipe = True

    def __init__(self, threads: int, device: str) -> None:
        super().__init__(threads, device)
        import keras

        self.keras = keras

    def to_native(self, array: Array, layout: str | None) -> Any:
        return super().to_native(native(array, layout), layout)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return canonical(super().to_numpy(tensor, layout), layout)

    def environment(self) -> dict[str, object]:
        return {self.name: self.keras.__version__, "jax": self.jax.__version__, "threads": self.threads}

    # -- training ------------------------------------------------------------------------------------------------------

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        def wrap(function: Callable[..., Any], variables: Sequence[Any]) -> Callable[..., Any]:
            return Compiled(self, function, variables) if mode == "jit" else self._waiting(function, variables)

        return learner(self, model, wrap, optimizer, match)

    def _waiting(self, function: Callable[..., Any], variables: Sequence[Any]) -> Callable[..., Any]:
        """The function, which returns when the new values of the variables are computed: they do not belong to its result."""

        def waiting(*arguments: Any) -> Any:
            result = function(*arguments)
            self.jax.block_until_ready([variable.value for variable in variables])
            return result

        return waiting

    def alias(self, tensor: Any) -> Any:
        return tensor.value if isinstance(tensor, self.keras.Variable) else tensor

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        return call.graphs() if isinstance(call, Compiled) else super().graph_count(call)

    def pure(self, model: Any) -> Function:
        return Pure(self, model)

    def in_training(self, model: Any) -> Any:
        return self.pure(model)

    def differentiate(self, asked: Pass) -> Gradients:
        """See ``Keras.differentiate``. ``tensors`` has no effect: ``captured_step`` computes the gradients within a model."""
        forward = asked.forward

        def loss(trained: Sequence[Any], others: Sequence[Any]) -> tuple[Any, Any]:
            outputs, others = forward(trained, others, asked.batch[:-1])
            value = self.loss(outputs, asked.batch[-1])
            return asked.scaled(value), (value, without_classes(outputs), others)

        trained, others = forward.present()
        (_, (value, outputs, others)), found = self.jax.value_and_grad(loss, has_aux=True)(trained, others)
        forward.write(trained, others)
        of_variable = dict(zip(map(id, forward.variables), found))
        return Gradients(outputs, value, (), [of_variable[id(variable)] for variable in asked.variables])


class Pure(Function):
    """A model of Keras as a function of its variables, in training mode. Its running statistics are among the other variables."""

    def __init__(self, framework: Adapter, model: Any) -> None:
        self.framework, self.model = framework, model
        self.forward = framework.forward(model, training=True)
        self.named = framework.trainable(model)
        self.variables = weights.variables(self.named)
        trained = {id(variable) for variable in self.variables}
        self.others = [variable for variable in model.variables if id(variable) not in trained]

    def present(self) -> tuple[list[Any], list[Any]]:
        return [variable.value for variable in self.variables], [variable.value for variable in self.others]

    def write(self, trained: Sequence[Any], others: Sequence[Any]) -> None:
        for variable, value in zip([*self.variables, *self.others], [*trained, *others]):
            variable.assign(value)

    def by_name(self, values: Sequence[Any]) -> dict[str, Array]:
        return self.framework.by_name(self.named, self.variables, values)

    def __call__(
        self, trained: Sequence[Any], others: Sequence[Any], inputs: Sequence[Any], around: Around = plainly
    ) -> tuple[Any, list[Any]]:
        given = zip([*self.variables, *self.others], [*trained, *others])
        with self.framework.keras.StatelessScope(list(given)) as scope, around(self.model):
            outputs = self.forward(*inputs)
        return outputs, [scope.get_current_value(variable) for variable in self.others]


class Compiled:
    """A function that reads and changes variables, compiled as a whole.

    function: takes tensors, and returns tensors in lists and tuples. variables: all that it reads or changes.
    """

    def __init__(self, framework: Adapter, function: Callable[..., Any], variables: Sequence[Any]) -> None:
        self.keras, self.function, self.variables = framework.keras, function, variables
        self.compiled = framework.jax.jit(self._pure)

    def _pure(self, values: Sequence[Any], *arguments: Any) -> tuple[Any, list[Any]]:
        """The result of the function, and the values of the variables after it. values: those before it."""
        with self.keras.StatelessScope(list(zip(self.variables, values))) as scope:
            result = self.function(*arguments)
        return result, [scope.get_current_value(variable) for variable in self.variables]

    def __call__(self, *arguments: Any) -> Any:
        result, values = self.compiled([variable.value for variable in self.variables], *arguments)
        for variable, value in zip(self.variables, values):
            variable.assign(value)
        return result

    def graphs(self) -> int:
        """The number of graphs that were compiled."""
        return int(self.compiled._cache_size())
