"""Training on JAX: a model is a pure function of its variables, and a step computes new values for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from xverify.framework.adapter import Array
from xverify.framework.capture import TrainingRecorder
from xverify.framework.structures import map_leaves, without_classes
from xverify.framework.training import Batch, Training
from xverify.frameworks.jax.optax import Steps
from xverify.frameworks.jax.optax_adafactor import Axes
from xverify.weights.flax_layout import NamedWeight, join, split
from xverify.workload.adafactor import check_no_sums
from xverify.workload.optimizers import Optimizer

# A function of the outputs and targets; see Framework.loss.
LossOf = Callable[[Any, Any], Any]
# Makes a context around the pass of a copy of the model, for example one that records its layers.
Around = Callable[[Any], AbstractContextManager[Any]]


def plainly(model: Any) -> AbstractContextManager[Any]:
    """Nothing around a pass."""
    return nullcontext()


class Function:
    """A model as a pure function of its variables and inputs, in training mode.

    trained: the weights that a training step changes. One weight may be several variables.
    """

    trained: Sequence[NamedWeight]

    def present(self) -> tuple[list[Any], list[Any]]:
        """The values of the variables that are trained, and of the others that a pass changes, such as running statistics."""
        raise NotImplementedError

    def write(self, trained: Sequence[Any], others: Sequence[Any]) -> None:
        """Set the variables of the model. The arguments are what ``present`` returns."""
        raise NotImplementedError

    def by_name(self, values: Sequence[Any]) -> dict[str, Array]:
        """Canonical name -> canonical array, for arrays of the variables that are trained. values: in the order of ``present``."""
        each = iter(values)
        return {one.name: join(one, [np.asarray(next(each)) for _ in one.parts]) for one in self.trained}

    def __call__(
        self, trained: Sequence[Any], others: Sequence[Any], inputs: Sequence[Any], around: Around = plainly
    ) -> tuple[Any, list[Any]]:
        """The outputs, and the other variables after the pass. The model itself stays as it is."""
        raise NotImplementedError


class Learner(Training):
    """Training with the optimizer that ``steps`` is.

    wrap: makes of a pure function what the mode runs, for example jax.jit; None: the mode runs the function itself.
    loss: ``Framework.loss``.
    """

    def __init__(self, function: Function, steps: Steps, wrap: Callable[[Any], Any] | None, loss: LossOf) -> None:
        import jax

        self.jax, self.function, self.optim, self.loss_of = jax, function, steps, loss
        self.optimizer, self.factored = steps.optimizer, steps.factored
        self.names = [each.name for each in function.trained]
        self.state = steps.begin(function.present()[0])
        self.steps = 0
        self.gradient = jax.value_and_grad(self._loss, has_aux=True)
        self.compiles = wrap is not None
        self.wrapped_step: Any = wrap(self._step) if wrap else self._step
        self.wrapped_gradient: Any = wrap(self.gradient) if wrap else self.gradient

    def _loss(self, trained: Sequence[Any], others: Sequence[Any], *batch: Any) -> tuple[Any, list[Any]]:
        outputs, others = self.function(trained, others, batch[:-1])
        return self.loss_of(outputs, batch[-1]), others

    def _step(self, trained: Sequence[Any], others: Sequence[Any], state: Any, *batch: Any) -> tuple[Any, ...]:
        (loss, others), gradients = self.gradient(trained, others, *batch)
        return loss, *self.optim.apply(gradients, state, trained), others

    def step(self, *batch: Any) -> Any:
        loss, trained, self.state, others = self.wrapped_step(*self.function.present(), self.state, *batch)
        self.function.write(trained, others)
        self.steps += 1
        if (
            not self.compiles
        ):  # the loss is then the output of one operation among many, and the others are not waited for
            self.jax.block_until_ready((trained, self.state, others))
        return loss

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        (loss, _), found = self.wrapped_gradient(*self.function.present(), *batch)
        return float(loss), self.function.by_name(found)

    def apply(self, gradients: Mapping[str, Array]) -> None:
        trained, others = self.function.present()
        changed, self.state = self.optim.apply(self._native(gradients), self.state, trained)
        self.function.write(changed, others)
        self.steps += 1

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        fields = [self.function.by_name(values) for values in self.optim.read(self.state)]
        return self.steps, {name: [field[name] for field in fields] for name in self.names}

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self.steps = steps
        count = len(self.optimizer.state_names)
        fields = [self._native({name: arrays[index] for name, arrays in state.items()}) for index in range(count)]
        self.state = self.optim.resume(self.function.present()[0], steps, fields)

    def graphs(self) -> int | None:
        """The number of graphs that were compiled for a step; None when the mode makes none."""
        return int(self.wrapped_step._cache_size()) if self.compiles else None

    def _native(self, arrays: Mapping[str, Array]) -> list[Any]:
        """One array for each variable. arrays: canonical, by the names of weights."""
        shapes = iter([tuple(value.shape) for value in self.function.present()[0]])
        return [
            self.jax.numpy.asarray(array)
            for each in self.function.trained
            for array in split(each, arrays[each.name], [next(shapes) for _ in each.parts])
        ]


def axes_of(function: Function, fused: Mapping[str, Sequence[str]], optimizer: Optimizer, match: bool) -> Axes | None:
    """The axes of the trained variables, where the optimizer needs them. The arguments are those of ``recipe_learner``."""
    if optimizer.name != "adafactor":
        return None
    if match:
        check_no_sums(fused)
    return Axes(function.trained, [tuple(value.shape) for value in function.present()[0]])


def cross_entropy(logits: Any, target: Any) -> Any:
    """The mean cross-entropy over all rows. logits: (..., classes); target: (...), class numbers."""
    import optax

    return optax.softmax_cross_entropy_with_integer_labels(logits, target).mean()


def captured_step(
    function: Function, batch: Batch, record: Callable[[Any], Around], recorder: TrainingRecorder, loss_of: LossOf
) -> tuple[Any, float, Mapping[str, Array]]:
    """Record the layers in one pass, and compute the gradients of what was recorded in another one.

    JAX has no gradient with respect to a value inside of a function. So the second pass adds a zero to each recorded tensor, and
    the gradient is the one with respect to this zero.

    record: makes a context that records the layers of a model with a recorder. loss_of: ``Framework.loss``.
    """
    import jax

    trained, others = function.present()
    function(trained, others, batch[:-1], record(recorder))
    zeros = [jax.numpy.zeros_like(tensor) for tensor in recorder.tensors()]

    def loss(trained: Sequence[Any], zeros: Sequence[Any]) -> tuple[Any, Any]:
        outputs, _ = function(trained, others, batch[:-1], record(_Adding(zeros)))
        return loss_of(outputs, batch[-1]), without_classes(outputs)

    differentiated = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    (value, outputs), (gradients, tensor_gradients) = differentiated(trained, zeros)
    recorder.take(tensor_gradients)
    return outputs, float(value), function.by_name(gradients)


class _Adding:
    """Adds one of these zeros to each tensor that a TrainingRecorder aliases, in the same order."""

    def __init__(self, zeros: Iterable[Any]) -> None:
        self.zeros = iter(zeros)

    def enter(self, name: str, arguments: Any) -> tuple[None, Any]:
        return None, self._added(arguments)

    def leave(self, record: None, outputs: Any) -> Any:
        return self._added(outputs)

    def _added(self, values: Any) -> Any:
        import jax

        known: dict[int, Any] = {}

        def change(value: Any) -> Any:
            if not hasattr(value, "shape") or not hasattr(value, "dtype"):
                return value
            if id(value) not in known:
                real = jax.numpy.issubdtype(value.dtype, jax.numpy.floating)  # a key of random numbers is not
                known[id(value)] = value + next(self.zeros) if real else value
            return known[id(value)]

        return map_leaves(values, change)
