"""Training with a recipe in Keras: the options of Keras' own optimizers, or torch's formulas in Keras' operations.

Keras' optimizers clip gradients, exclude variables from weight decay, accumulate gradients and keep an average of the weights. One
optimizer has one learning rate, which may be a schedule.
"""

# The framework's classes have no types, and a class here is derived from one of them.
# mypy: allow-subclassing-any

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array
from xverify.framework.training import Used
from xverify.frameworks.keras.training import Learner, Wrap, equivalent_optimizer, keras_optimizer, whole
from xverify.weights import tensorflow as weights
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import averaged, clipped, micro_batches
from xverify.workload.schedule import Schedule

# How gradients are clipped -> the argument of Keras' optimizers.
ARGUMENTS = {"clip_norm": "global_clipnorm", "clip_value": "clipvalue", "clip_each": "clipnorm"}
INSTEAD = "run with --match-optimizer"


class RecipeLearner(Learner):
    """Training with an optimizer of Keras and its options, or with an exact equivalent of torch's formulas."""

    def _wrap_steps(self, model: Any, wrap: Wrap) -> None:
        import keras

        self.average = self._make_average()
        changed = [*model.variables, *self.optim.variables, *self.average]
        self.wrapped_step, self.wrapped_gradients = wrap(self._step, changed), wrap(self._gradients, changed)
        # A step that also writes what it uses: the accumulated and the clipped gradients, and the learning rate.
        self.seen = [
            [keras.Variable(np.zeros(each.shape, "float32"), trainable=False) for each in self.variables] for _ in "ab"
        ]
        self.seen_rate = keras.Variable(0.0, trainable=False)
        self.wrapped_observed = wrap(self._observed, [*changed, *self.seen[0], *self.seen[1], self.seen_rate])

    def _make_average(self) -> list[Any]:
        """The variables of the average of the weights; [] without one."""
        import keras

        if self.recipe.average is None:
            return []
        if not self.match:
            return list(self.optim._model_variables_moving_average)
        return [keras.Variable(np.array(each), trainable=False) for each in self.variables]

    def _trained(self, trainable: list[Any], optimizer: Optimizer) -> list[Any]:
        return [each for each in trainable if not optimizer.recipe.freezes(each.name)]

    # -- the optimizer ------------------------------------------------------------------------------------------------

    def _make_optimizer(self, model: Any, optimizer: Optimizer) -> tuple[Optimizer, Any]:
        self.recipe = optimizer.recipe
        # Keras' optimizer counts micro-batches.
        self.counted = 1 if self.match else self.recipe.accumulate
        self.settings = [optimizer] * len(self.variables)
        for each in self.trainable:
            for variable, _ in each.pieces:
                self.settings[self.places[id(variable)]] = optimizer.of(each.name)
        schedule = optimizer.recipe.schedule
        if self.match:
            rate = table(schedule) if schedule else 1.0
            return equivalent_optimizer(optimizer, self._parts(model), self.settings, rate, self.torch_axes(model))
        self._check_groups(optimizer)
        return self._own_optimizer(optimizer)

    def _check_groups(self, optimizer: Optimizer) -> None:
        """Raise Unsupported for a group that one optimizer of Keras cannot have."""
        for each in self.trainable:
            own, group = optimizer.of(each.name), optimizer.recipe.group_of(each.name)
            if group is None:
                continue
            if own.lr != optimizer.lr:
                raise Unsupported(
                    f"an optimizer of Keras has one learning rate, {optimizer.lr:g}, and the group {group.pattern!r} "
                    f"has {own.lr:g}: {INSTEAD}"
                )
            if own.weight_decay not in (0.0, optimizer.weight_decay):
                raise Unsupported(
                    f"an optimizer of Keras has one weight decay, {optimizer.weight_decay:g}, or none for some variables, and the "
                    f"group {group.pattern!r} has {own.weight_decay:g}: {INSTEAD}"
                )

    def _own_optimizer(self, optimizer: Optimizer) -> tuple[Optimizer, Any]:
        """Keras' optimizer with its options, and the settings with all its variants."""
        # more: arguments of an optimizer, which are numbers, truth values and schedules
        recipe, more, differences = optimizer.recipe, dict[str, Any](), []
        if recipe.clip:
            more[ARGUMENTS[recipe.clip[0]]] = recipe.clip[1]
            differences += ["clip eps"] * (recipe.clip[0] != "clip_value")
        if recipe.average is not None:
            more |= {"use_ema": True, "ema_momentum": recipe.average}
        if recipe.accumulate > 1:
            more["gradient_accumulation_steps"] = recipe.accumulate
            differences += ["schedule of micro-batches"] * (recipe.schedule is not None)
            differences += ["average of micro-batches"] * (recipe.average is not None)
        if recipe.schedule and optimizer.momentum:
            differences.append("rates in momentum")
        rate = keras_schedule(recipe.schedule, optimizer.lr) if recipe.schedule else None
        settings, made = keras_optimizer(optimizer, rate, **more)
        spared = [variable for variable, own in zip(self.variables, self.settings) if not own.weight_decay]
        if optimizer.weight_decay and spared:
            made.exclude_from_weight_decay(var_list=spared)
        return replace(settings, variants=(*settings.variants, *differences)), made

    # -- the step -----------------------------------------------------------------------------------------------------

    def _step(self, *batch: Any) -> Any:
        return self._step_with(lambda accumulated, clipped: None, batch)

    def _step_with(self, record: Callable[[Sequence[Any], Sequence[Any]], None], batch: Sequence[Any]) -> Any:
        """One step. record: receives the accumulated and the clipped gradients."""
        parts, before = micro_batches(batch, self.recipe.accumulate), self.norms.variances() if self.norms else []
        losses, gradients = [], list[list[Any]]()
        for part in parts:
            found = self.differentiate(part)
            losses.append(found.loss)
            if self.match:
                gradients.append(self._dense(found.variables))
            else:
                self.update(self._dense(found.variables) if len(parts) > 1 else found.variables)
        if self.match:
            self._apply(record, [sum(each[1:], each[0]) / len(parts) for each in zip(*gradients)])
        if self.norms:
            self.norms.correct(before)
        return sum(losses[1:], losses[0]) / len(parts)

    def update(self, gradients: Sequence[Any]) -> None:
        """Let Keras' optimizer clip the gradients and make its update."""
        self.optim.apply(gradients, self.variables)

    def _apply(self, record: Callable[[Sequence[Any], Sequence[Any]], None], gradients: list[Any]) -> None:
        """Clip by torch's formula, update, and average."""
        from keras import ops

        from xverify.frameworks.keras.operations import KerasOperations

        within = clipped(self.recipe.clip, gradients, KerasOperations())
        record(gradients, within)
        first = ops.equal(self.optim.iterations, 0)
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

    # -- the state ----------------------------------------------------------------------------------------------------

    def _arrays(self, variables: Sequence[Any]) -> dict[str, Array]:
        return self.framework.by_name(self.trainable, self.variables, [each.value for each in variables])

    def _set_steps(self, steps: int) -> None:
        self.optim._iterations.assign(steps * self.counted)

    @property
    def _scale(self) -> float:
        """Keras' SGD adds up learning rates times gradients, so its momentum is that of torch times the last rate."""
        if self.match or self.optimizer.name != "sgd":
            return 1.0
        updates, parts = whole(self.optim._iterations) // self.counted, self.counted
        last = self.recipe.factor(max(0, updates - 1) * parts + parts - 1)
        return super()._scale * (last or 1.0)

    def averages(self) -> dict[str, Array]:
        return self._arrays(self.average) if self.average else {}

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        for variable, array in weights.native(self.trainable, averages):
            self.average[self.places[id(variable)]].assign(array)


def keras_schedule(schedule: Schedule, lr: float) -> Any:
    """Keras' own schedule of the learning rate. Raises Unsupported when Keras has none."""
    from keras.optimizers import schedules

    warmup, count = schedule.warmup, (schedule.steps or 0) - schedule.warmup
    if schedule.kind == "cosine" and warmup:
        return schedules.CosineDecay(lr * schedule.start, count, schedule.end, warmup_target=lr, warmup_steps=warmup)
    if schedule.kind == "cosine":
        return schedules.CosineDecay(lr, count, schedule.end)
    if schedule.kind == "linear" and not warmup:
        return schedules.PolynomialDecay(lr, count, lr * schedule.end)
    if schedule.kind == "step" and not warmup:
        return schedules.ExponentialDecay(lr, schedule.every, schedule.gamma, staircase=True)
    raise Unsupported(f"Keras has no schedule for this: {schedule.says()}; {INSTEAD}")


def table(schedule: Schedule) -> Any:
    """A schedule of Keras that looks up the factors of torch's."""
    import keras
    from keras import ops

    factors = np.array(schedule.factors(), np.float32)

    class Table(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return ops.take(ops.convert_to_tensor(factors), ops.minimum(ops.cast(step, "int32"), len(factors) - 1))

        def get_config(self) -> dict[str, int]:
            return {"steps": len(factors)}

    return Table()
