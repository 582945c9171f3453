"""Training with Keras 3 on any backend: Keras' own optimizers, and exact equivalents of torch's formulas."""

# The framework's classes have no types, and a class here is derived from one of them.
# mypy: allow-subclassing-any

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from xverify.framework.adapter import Array
from xverify.framework.training import Training
from xverify.frameworks.keras.adafactor import axes_of_weights, factors, keras_adafactor, own_axes
from xverify.frameworks.keras.base import Gradients, Keras, Pass
from xverify.weights import tensorflow as weights
from xverify.workload.adafactor import Factored, check_no_sums, last_two, native_axes, with_other_axes
from xverify.workload.optimizers import DECOUPLED, Optimizer, update_sum

# Turns a Python function of native tensors into what the mode runs, e.g. tf.function. The second argument is all variables that the
# function reads or changes.
Wrap = Callable[[Callable[..., Any], Sequence[Any]], Any]


class Learner(Training):
    """Training with an optimizer of Keras, or with an exact equivalent of torch.optim."""

    # Optimizer -> attributes of Keras' optimizer that hold what Optimizer.state_names names, in the same order.
    STATE_NAMES = {
        "sgd": ("momentums",),
        "adam": ("_momentums", "_velocities", "_velocity_hats"),
        "adamw": ("_momentums", "_velocities", "_velocity_hats"),
        "rmsprop": ("_velocities",),
        "lion": ("_momentums",),
        "adafactor": ("_r", "_c", "_v"),
    }

    def __init__(
        self,
        framework: Keras,
        model: Any,
        wrap: Wrap,
        optimizer: Optimizer,
        match: bool,
    ) -> None:
        self.framework, self.match = framework, match
        self.trainable = self._trained(framework.trainable(model), optimizer)
        self.names = [each.name for each in self.trainable]
        self.variables = weights.variables(self.trainable)
        self.places = {id(variable): index for index, variable in enumerate(self.variables)}
        self.orders = axes_of_weights(self.trainable) if optimizer.name == "adafactor" else {}
        self.optimizer, self.optim = self._make_optimizer(model, optimizer)
        if self.orders and not match:
            self.factored = own_axes(self.trainable, self.orders)
            self.optimizer = with_other_axes(self.optimizer, self.factored)
        self.optim.build(self.variables)
        self.norms = _MatchedNorms(model) if match else None
        self.forward = framework.in_training(model)
        self._wrap_steps(model, wrap)

    def _wrap_steps(self, model: Any, wrap: Wrap) -> None:
        """Let the mode run the functions of a step."""
        # Keras on JAX is told what a step changes. A model of TensorLayer does not list its variables, and runs on TensorFlow.
        changed = [*getattr(model, "variables", self.variables), *self.optim.variables]
        self.wrapped_step, self.wrapped_gradients = wrap(self._step, changed), wrap(self._gradients, changed)

    def _trained(self, trainable: list[Any], optimizer: Optimizer) -> list[Any]:
        """The weights that a step changes. trainable: those that the model declares."""
        return trainable

    def _make_optimizer(self, model: Any, optimizer: Optimizer) -> tuple[Optimizer, Any]:
        """The settings with the formula variants, and the optimizer, which is not built yet."""
        if self.match:
            return equivalent_optimizer(optimizer, self._parts(model), axes=self.torch_axes(model))
        return keras_optimizer(optimizer)

    def torch_axes(self, model: Any) -> list[Factored]:
        """For each variable, its axes that are the last two of torch's weight; [] when the optimizer needs none."""
        if self.orders:
            check_no_sums(self.framework.fused_parameters(model))
        return [native_axes(order, last_two(len(order))) for order in self.orders.values()]

    def _parts(self, model: Any) -> list[int]:
        """For each variable, the number of torch's parameters that it is the sum of; 1 for most."""
        fused = self.framework.fused_parameters(model)
        parts = [1] * len(self.variables)
        for each in self.trainable:
            for variable, _ in each.pieces:
                parts[self.places[id(variable)]] = len(fused.get(each.name, (each.name,)))
        return parts

    def _step(self, *batch: Any) -> Any:
        before = self.norms.variances() if self.norms else []
        found = self.differentiate(batch)
        gradients = self._dense(found.variables) if self.match else found.variables
        self.optim.apply(gradients, self.variables)
        if self.norms:
            self.norms.correct(before)
        return found.loss

    def _gradients(self, *batch: Any) -> Any:
        found = self.differentiate(batch)
        if not self.match:
            in_rows = [type(gradient).__name__ == "IndexedSlices" for gradient in found.variables]
            self.sparse = [
                each.name for each in self.trainable if any(in_rows[self.places[id(piece[0])]] for piece in each.pieces)
            ]
        return found.loss, self._dense(found.variables)

    def differentiate(self, batch: Sequence[Any]) -> Gradients:
        """One forward and one backward pass."""
        return self.framework.differentiate(Pass(self.forward, tuple(batch), self.variables))

    def _dense(self, gradients: Sequence[Any]) -> list[Any]:
        return [None if gradient is None else self.framework.dense(gradient) for gradient in gradients]

    @property
    def step(self) -> Callable[..., Any]:
        """The callable of the mode itself, so that the timed call includes nothing else."""
        step: Callable[..., Any] = self.wrapped_step
        return step

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        loss, found = self.wrapped_gradients(*batch)
        return float(loss), self.framework.by_name(self.trainable, self.variables, found)

    def apply(self, gradients: Mapping[str, Array]) -> None:
        arrays = [array for _, array in weights.native(self.trainable, gradients)]
        self.optim.apply([self.framework.to_native(array, None) for array in arrays], self.variables)

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        arrays = [
            [np.array(self.framework.to_numpy(each.value, None)) / np.float32(self._scale) for each in variables]
            for variables in map(self._state_variables, range(len(self.variables)))
        ]
        count = range(len(self.optimizer.state_names))
        state = {
            each.name: [weights.canonical(each, lambda v: arrays[self.places[id(v)]][index]) for index in count]  # noqa: B023
            for each in self.trainable
        }
        return whole(self.optim.iterations), state

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self._set_steps(steps)
        for index in range(len(self.optimizer.state_names)):
            scaled = {each.name: state[each.name][index] * np.float32(self._scale) for each in self.trainable}
            for variable, array in weights.native(self.trainable, scaled):
                self._state_variables(self.places[id(variable)])[index].assign(array)

    def _set_steps(self, steps: int) -> None:
        self.optim.iterations.assign(steps)

    def _state_variables(self, index: int) -> list[Any]:
        """The optimizer state of the variable with this index, in the order of Optimizer.state_names."""
        if self.match:
            return [variables[index] for variables in self.optim.state_variables]
        if self.orders:
            return factors(self.optim, self.variables[index], index, self.orders[id(self.variables[index])])
        return [getattr(self.optim, name)[index] for name in self.optimizer.keys(self.STATE_NAMES)]

    @property
    def _scale(self) -> float:
        """Keras' state divided by torch's: Keras' SGD stores -lr times the momentum."""
        return -self.optimizer.lr if self.optimizer.name == "sgd" and not self.match else 1.0


def whole(value: Any) -> int:
    """A whole number from a variable or a tensor of Keras: with micro-batches, an optimizer computes its number of steps."""
    from keras import ops

    return int(ops.convert_to_numpy(value))


def keras_optimizer(o: Optimizer, rate: Any = None, **more: Any) -> tuple[Optimizer, Any]:
    """The settings with Keras' formula variants, and Keras' own optimizer.

    rate: a schedule in the place of the learning rate. more: further arguments of every optimizer of Keras.
    """
    from keras import optimizers

    decay, rate = o.weight_decay or None, o.lr if rate is None else rate
    decoupled = ("decoupled",) if decay and o.name not in DECOUPLED else ()
    if o.name == "sgd":
        made = optimizers.SGD(rate, float(o.momentum), o.nesterov, weight_decay=decay, **more)
        return replace(o, variants=decoupled), made
    if o.name == "rmsprop":
        variants = ("eps-inside", *decoupled)
        made = optimizers.RMSprop(rate, o.alpha, epsilon=o.eps, weight_decay=decay, **more)
        return replace(o, variants=variants), made
    if o.name == "adafactor":
        return keras_adafactor(o, rate, **more)
    if o.name == "lion":
        return o.plain, optimizers.Lion(rate, o.beta1, o.beta2, weight_decay=decay, **more)
    kind = optimizers.Adam if o.name == "adam" else optimizers.AdamW
    betas = {"beta_1": o.beta1, "beta_2": o.beta2, "amsgrad": o.recipe.amsgrad}
    made = kind(learning_rate=rate, epsilon=o.eps, weight_decay=decay, **betas, **more)
    return replace(o, variants=("eps-hat", *decoupled)), made


def equivalent_optimizer(
    o: Optimizer,
    parts: Sequence[int],
    each: Sequence[Optimizer] = (),
    rate: Any = None,
    axes: Sequence[Factored] = (),
) -> tuple[Optimizer, Any]:
    """The settings without variants, and torch's formulas in Keras' operations.

    parts: for each variable, the number of torch's parameters that it is the sum of; 1 for most.
    each: for each variable, its own settings, whose learning rate is multiplied by ``rate``; (): all have those of ``o``.
    rate: a schedule of factors.
    axes: for each variable, those that adafactor takes; (): another optimizer.
    """
    import keras
    from keras import ops

    from xverify.frameworks.keras.operations import KerasOperations

    operations = KerasOperations()

    class Equivalent(keras.optimizers.Optimizer):
        def build(self, variables: Any) -> None:
            if not self.built:
                super().build(variables)
                self.state_variables = [self.add_optimizer_variables(variables, name) for name in o.state_names]

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            index = self._get_variable_index(variable)
            state_variables = [variables[index] for variables in self.state_variables]
            w, g, *state = (ops.convert_to_tensor(value) for value in (variable, gradient, *state_variables))
            step = ops.cast(self.iterations + 1, "float32")
            own = replace(each[index], lr=each[index].lr * learning_rate) if each else o
            taken = axes[index] if axes else None
            new_w, new_state = update_sum(parts[index], own, w, g, state, step, operations, taken)
            self.assign(variable, new_w)
            for state_variable, value in zip(state_variables, new_state):
                self.assign(state_variable, value)

    return o.plain, Equivalent(learning_rate=o.lr if rate is None else rate)


class _MatchedNorms:
    """Makes the batch norms of a model compute as torch's do.

    Keras computes the variance as E[x²] - E[x]², and its running variance lacks the factor n/(n - 1).
    """

    def __init__(self, model: Any) -> None:
        import keras

        layers = model._flatten_layers(include_self=False) if isinstance(model, keras.layers.Layer) else ()
        self.norms = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
        self.terms: dict[int, int] = {}  # id of a norm -> n, the number of values in each of its means
        for norm in self.norms:
            norm.call = self._counting(norm, norm.call)
            norm._moments = partial(_moments, norm)

    def _counting(self, norm: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """The method ``call`` of a norm, which also sets ``terms``."""

        def counted(x: Any, *args: Any, **kwargs: Any) -> Any:
            self.terms[id(norm)] = int(np.prod(list(x.shape)) // x.shape[norm.axis])
            return call(x, *args, **kwargs)

        return counted

    def variances(self) -> list[Any]:
        """Copies of the running variances."""
        from keras import ops

        return [ops.copy(norm.moving_variance.value) for norm in self.norms]

    def correct(self, before: Sequence[Any]) -> None:
        """Correct the running variances after a step. before: the running variances before the step.

        Keras computes new = m·old + (1 - m)·biased, where m is the momentum. Torch's value is larger by (1 - m)·biased/(n - 1).
        """
        for norm, old in zip(self.norms, before):
            new = norm.moving_variance.value
            norm.moving_variance.assign(new + (new - norm.momentum * old) / max(1, self.terms[id(norm)] - 1))


def _moments(norm: Any, x: Any, mask: Any) -> tuple[Any, Any]:
    """The mean and the biased variance of each channel, in two passes. mask: without effect."""
    from keras import ops

    axes = [axis for axis in range(len(x.shape)) if axis != norm.axis % len(x.shape)]

    def mean_over(x: Any) -> Any:
        for axis in reversed(axes):  # a single float32 sum over all axes loses digits
            x = ops.mean(x, axis, keepdims=True)
        return x

    mean = mean_over(x)
    variance = mean_over(ops.square(x - mean))
    return ops.squeeze(mean, axes), ops.squeeze(variance, axes)
