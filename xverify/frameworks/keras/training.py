"""Training with Keras 3 on any backend: Keras' own optimizers with their options, and exact equivalents of torch's formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xverify.framework.adapter import Array
from xverify.framework.training import Training, Used
from xverify.frameworks.keras.adafactor import axes_of_weights, factors, own_axes
from xverify.frameworks.keras.base import Gradients, Keras, Pass
from xverify.frameworks.keras.norms import MatchedNorms
from xverify.frameworks.keras.optimizers import equivalent_optimizer, own_optimizer
from xverify.weights import tensorflow as weights
from xverify.workload.adafactor import Factored, check_no_sums, last_two, native_axes, with_other_axes
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import averaged, clipped, mean_of_parts, micro_batches

# Turns a Python function of native tensors into what the mode runs, e.g. tf.function. The second argument is all variables that the
# function reads or changes.
Wrap = Callable[[Callable[..., Any], Sequence[Any]], Any]
Record = Callable[[Sequence[Any], Sequence[Any]], None]  # receives the accumulated and the clipped gradients of a step


class Learner(Training):
    """Training with an optimizer of Keras and its options, or with an exact equivalent of torch's formulas."""

    # Optimizer -> attributes of Keras' optimizer that hold what Optimizer.state_names names, in the same order.
    STATE_NAMES = {
        "sgd": ("momentums",),
        "adam": ("_momentums", "_velocities", "_velocity_hats"),
        "adamw": ("_momentums", "_velocities", "_velocity_hats"),
        "rmsprop": ("_velocities",),
        "adagrad": ("_accumulators",),
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
        self.framework, self.match, self.recipe = framework, match, optimizer.recipe
        self.trainable = [each for each in framework.trainable(model) if not self.recipe.freezes(each.name)]
        self.names = [each.name for each in self.trainable]
        self.variables = weights.variables(self.trainable)
        self.places = {id(variable): index for index, variable in enumerate(self.variables)}
        self.orders = axes_of_weights(self.trainable) if optimizer.name == "adafactor" else {}
        # Keras' optimizer counts micro-batches.
        self.counted = 1 if match else self.recipe.accumulate
        self.optimizer, self.optim = self._make_optimizer(model, optimizer)
        if self.orders and not match:
            self.factored = own_axes(self.trainable, self.orders)
            self.optimizer = with_other_axes(self.optimizer, self.factored)
        self.optim.build(self.variables)
        self.norms = MatchedNorms(model) if match else None
        self.forward = framework.in_training(model)
        self.average = self._make_average()
        self._wrap_steps(model, wrap)

    # -- the optimizer ------------------------------------------------------------------------------------------------

    def _make_optimizer(self, model: Any, optimizer: Optimizer) -> tuple[Optimizer, Any]:
        """The settings with all variants, and the optimizer, which is not built yet."""
        self.settings = [optimizer] * len(self.variables)
        for each in self.trainable:
            for variable, _ in each.pieces:
                self.settings[self.places[id(variable)]] = optimizer.of(each.name)
        if self.match:
            return equivalent_optimizer(optimizer, self._parts(model), self.settings, self._torch_axes(model))
        spared = [variable for variable, own in zip(self.variables, self.settings) if not own.weight_decay]
        return own_optimizer(optimizer, self.names, spared)

    def _torch_axes(self, model: Any) -> list[Factored]:
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

    def _make_average(self) -> list[Any]:
        """The variables of the average of the weights; [] without one."""
        import keras

        if self.recipe.average is None:
            return []
        if not self.match:
            return list(self.optim._model_variables_moving_average)
        return [keras.Variable(np.array(each), trainable=False) for each in self.variables]

    def _wrap_steps(self, model: Any, wrap: Wrap) -> None:
        """Let the mode run the functions of a step."""
        import keras

        # Keras on JAX is told what a step changes. A model of TensorLayer does not list its variables, and runs on TensorFlow.
        changed = [*getattr(model, "variables", self.variables), *self.optim.variables, *self.average]
        self.wrapped_step, self.wrapped_gradients = wrap(self._step, changed), wrap(self._gradients, changed)
        if not self.recipe:
            return
        # A step that also writes what it uses: the accumulated and the clipped gradients, and the learning rate.
        self.seen = [
            [keras.Variable(np.zeros(each.shape, "float32"), trainable=False) for each in self.variables] for _ in "ab"
        ]
        self.seen_rate = keras.Variable(0.0, trainable=False)
        self.wrapped_observed = wrap(self._observed, [*changed, *self.seen[0], *self.seen[1], self.seen_rate])

    # -- the step -----------------------------------------------------------------------------------------------------

    def _step(self, *batch: Any) -> Any:
        return self._step_with(lambda accumulated, clipped: None, batch)

    def _step_with(self, record: Record, batch: Sequence[Any]) -> Any:
        """One step."""
        parts, before = micro_batches(batch, self.recipe.accumulate), self.norms.variances() if self.norms else []
        losses, gradients = [], list[list[Any]]()
        for part in parts:
            of_part = self.differentiate(part)
            losses.append([of_part.loss])
            if self.match:
                gradients.append(self._dense(of_part.variables))
            else:
                self.update(self._dense(of_part.variables) if len(parts) > 1 else of_part.variables)
        if self.match:
            self._apply(record, mean_of_parts(gradients))
        if self.norms:
            self.norms.correct(before)
        return mean_of_parts(losses)[0]

    def update(self, gradients: Sequence[Any]) -> None:
        """Let Keras' optimizer clip the gradients and make its update."""
        self.optim.apply(gradients, self.variables)

    def _apply(self, record: Record, gradients: list[Any]) -> None:
        """Clip by torch's formula, update, and average."""
        from keras import ops

        from xverify.frameworks.keras.operations import KerasOperations

        within = clipped(self.recipe.clip, gradients, KerasOperations())
        record(gradients, within)
        first = ops.equal(self.optim.iterations, 0) if self.average else None
        self.optim.apply(within, self.variables)
        for average, variable in zip(self.average, self.variables):
            assert self.recipe.average is not None
            present, weight = ops.convert_to_tensor(average), ops.convert_to_tensor(variable)
            average.assign(ops.where(first, weight, averaged(self.recipe.average, present, weight)))

    def _observed(self, *batch: Any) -> Any:
        """A step that also writes what it uses into ``seen``."""
        from keras import ops

        def record(accumulated: Sequence[Any], clipped: Sequence[Any]) -> None:
            for seen, gradients in zip(self.seen, (accumulated, clipped)):
                for variable, gradient in zip(seen, gradients):
                    variable.assign(self.framework.dense(gradient))
            self.seen_rate.assign(ops.cast(self.optim._get_current_learning_rate(), "float32"))

        if self.match:
            return self._step_with(record, batch)
        clip = self.optim._clip_gradients

        def clip_and_record(gradients: Sequence[Any]) -> Any:
            within = clip(gradients)
            record(gradients, within)
            return within

        self.optim._clip_gradients = clip_and_record
        try:
            return self._step_with(record, batch)
        finally:
            del self.optim._clip_gradients

    def observe(self, *batch: Any) -> Used:
        self.framework.wait(self.wrapped_observed(*batch))
        used, rate = Used(), np.float32(np.array(self.seen_rate))
        used.accumulated, used.clipped = (self._arrays(seen) for seen in self.seen)
        for each in self.trainable:
            variable = each.pieces[0][0]
            own = self.settings[self.places[id(variable)]]
            used.rates[each.name] = float(np.float32(own.lr) * rate if self.match else rate)
            decays = self.match or self.optim._use_weight_decay(variable)
            kept = own.weight_decay if self.match else float(self.optim.weight_decay or 0.0)
            used.decays[each.name] = kept if decays else 0.0
        return used

    def _gradients(self, *batch: Any) -> Any:
        computed = self.differentiate(batch)
        if not self.match:
            in_rows = [type(gradient).__name__ == "IndexedSlices" for gradient in computed.variables]
            self.sparse = [
                each.name for each in self.trainable if any(in_rows[self.places[id(piece[0])]] for piece in each.pieces)
            ]
        return computed.loss, self._dense(computed.variables)

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
        loss, computed = self.wrapped_gradients(*batch)
        return float(loss), self.framework.by_name(self.trainable, self.variables, computed)

    def apply(self, gradients: Mapping[str, Array]) -> None:
        arrays = [array for _, array in weights.native(self.trainable, gradients)]
        self.optim.apply([self.framework.to_native(array, None) for array in arrays], self.variables)

    # -- the state ----------------------------------------------------------------------------------------------------

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        scale = self._scale
        arrays = [
            [np.array(self.framework.to_numpy(each.value, None)) / scale for each in variables]
            for variables in map(self._state_variables, range(len(self.variables)))
        ]
        count = range(len(self.optimizer.state_names))
        state = {
            each.name: [weights.canonical(each, lambda v: arrays[self.places[id(v)]][index]) for index in count]  # noqa: B023
            for each in self.trainable
        }
        return whole(self.optim.iterations), state

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self.optim._iterations.assign(steps * self.counted)
        scale = self._scale
        for index in range(len(self.optimizer.state_names)):
            scaled = {each.name: state[each.name][index] * scale for each in self.trainable}
            for variable, array in weights.native(self.trainable, scaled):
                self._state_variables(self.places[id(variable)])[index].assign(array)

    def _state_variables(self, index: int) -> list[Any]:
        """The optimizer state of the variable with this index, in the order of Optimizer.state_names."""
        if self.match:
            return [variables[index] for variables in self.optim.state_variables]
        if self.orders:
            return factors(self.optim, self.variables[index], index, self.orders[id(self.variables[index])])
        return [getattr(self.optim, name)[index] for name in self.optimizer.keys(self.STATE_NAMES)]

    @property
    def _scale(self) -> np.float32:
        """Keras' state divided by torch's: Keras' SGD adds up -(learning rate) x gradient, so it depends on the last rate."""
        if self.match or self.optimizer.name != "sgd":
            return np.float32(1)
        updates, parts = whole(self.optim._iterations) // self.counted, self.counted
        last = self.recipe.factor(max(0, updates - 1) * parts + parts - 1)
        return np.float32(-self.optimizer.lr * (last or 1.0))

    def averages(self) -> dict[str, Array]:
        return self._arrays(self.average) if self.average else {}

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        for variable, array in weights.native(self.trainable, averages):
            self.average[self.places[id(variable)]].assign(array)

    def _arrays(self, variables: Sequence[Any]) -> dict[str, Array]:
        return self.framework.by_name(self.trainable, self.variables, [each.value for each in variables])


def whole(value: Any) -> int:
    """A whole number from a variable or a tensor of Keras: with micro-batches, an optimizer computes its number of steps."""
    from keras import ops

    return int(ops.convert_to_numpy(value))
