"""Keras' own optimizers with their options, and exact equivalents of torch's formulas in Keras' operations.

Keras' optimizers clip gradients, exclude variables from weight decay, accumulate gradients and keep an average of the weights. One
optimizer has one learning rate, which may be a schedule.
"""

# The framework's classes have no types, and a class here is derived from one of them.
# mypy: allow-subclassing-any

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.frameworks.keras.adafactor import keras_adafactor
from xverify.workload.adafactor import Factored
from xverify.workload.optimizers import DECOUPLED, Optimizer, update_sum
from xverify.workload.schedule import Schedule

# How gradients are clipped -> the argument of Keras' optimizers.
ARGUMENTS = {"clip_norm": "global_clipnorm", "clip_value": "clipvalue", "clip_each": "clipnorm"}
INSTEAD = "run with --match-optimizer"


def own_optimizer(o: Optimizer, names: Iterable[str], spared: Sequence[Any]) -> tuple[Optimizer, Any]:
    """The settings with all of Keras' variants, and Keras' own optimizer with its options.

    names: of the weights. spared: the variables without weight decay. Raises Unsupported for what Keras does not have.
    """
    _check_groups(o, names)
    recipe, more, differences = o.recipe, dict[str, float](), []  # more: further arguments of an optimizer
    if recipe.clip:
        more[ARGUMENTS[recipe.clip[0]]] = recipe.clip[1]
        differences += ["clip eps"] * (recipe.clip[0] != "clip_value")
    if recipe.average is not None:
        more |= {"use_ema": True, "ema_momentum": recipe.average}
    if recipe.accumulate > 1:
        more["gradient_accumulation_steps"] = recipe.accumulate
        differences += ["schedule of micro-batches"] * (recipe.schedule is not None)
        differences += ["average of micro-batches"] * (recipe.average is not None)
    if recipe.schedule and o.momentum:
        differences.append("rates in momentum")
    rate = _schedule(recipe.schedule, o.lr) if recipe.schedule else None
    settings, made = _formula(o, o.lr if rate is None else rate, **more)
    if o.weight_decay and spared:
        made.exclude_from_weight_decay(var_list=spared)
    return replace(settings, variants=(*settings.variants, *differences)), made


def _check_groups(o: Optimizer, names: Iterable[str]) -> None:
    """Raise Unsupported for a group that one optimizer of Keras cannot have."""
    for name in names:
        own, group = o.of(name), o.recipe.group_of(name)
        if group is None:
            continue
        if own.lr != o.lr:
            raise Unsupported(
                f"an optimizer of Keras has one learning rate, {o.lr:g}, and the group {group.pattern!r} "
                f"has {own.lr:g}: {INSTEAD}"
            )
        if own.weight_decay not in (0.0, o.weight_decay):
            raise Unsupported(
                f"an optimizer of Keras has one weight decay, {o.weight_decay:g}, or none for some variables, and the "
                f"group {group.pattern!r} has {own.weight_decay:g}: {INSTEAD}"
            )


def _formula(o: Optimizer, rate: Any, **more: Any) -> tuple[Optimizer, Any]:
    """The settings with the variants of Keras' formula, and Keras' own optimizer.

    rate: a number, or a schedule of Keras. more: further arguments of every optimizer of Keras.
    """
    from keras import optimizers

    decay = o.weight_decay or None
    decoupled = ("decoupled",) if decay and o.name not in DECOUPLED else ()
    if o.name == "sgd":
        made = optimizers.SGD(rate, float(o.momentum), o.nesterov, weight_decay=decay, **more)
        return replace(o, variants=decoupled), made
    if o.name == "rmsprop":
        made = optimizers.RMSprop(rate, o.alpha, epsilon=o.eps, weight_decay=decay, **more)
        return replace(o, variants=("eps-inside", *decoupled)), made
    if o.name == "adagrad":
        made = optimizers.Adagrad(rate, 0.0, o.eps, weight_decay=decay, **more)
        return replace(o, variants=("eps-inside", *decoupled)), made
    if o.name == "adafactor":
        return keras_adafactor(o, rate, **more)
    if o.name == "lion":
        return o.plain, optimizers.Lion(rate, o.beta1, o.beta2, weight_decay=decay, **more)
    kind = optimizers.Adam if o.name == "adam" else optimizers.AdamW
    betas = {"beta_1": o.beta1, "beta_2": o.beta2, "amsgrad": o.recipe.amsgrad}
    made = kind(learning_rate=rate, epsilon=o.eps, weight_decay=decay, **betas, **more)
    return replace(o, variants=("eps-hat", *decoupled)), made


def _schedule(schedule: Schedule, lr: float) -> Any:
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


def equivalent_optimizer(
    o: Optimizer,
    parts: Sequence[int],
    settings: Sequence[Optimizer],
    axes: Sequence[Factored],
) -> tuple[Optimizer, Any]:
    """The settings without variants, and torch's formulas in Keras' operations.

    parts: for each variable, the number of torch's parameters that it is the sum of; 1 for most.
    settings: of each variable. The optimizer's own learning rate is the factor of the schedule, 1 without one.
    axes: for each variable, those that adafactor takes; (): another optimizer.
    """
    import keras
    from keras import ops

    from xverify.frameworks.keras.operations import KerasOperations

    operations, schedule = KerasOperations(), o.recipe.schedule

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
            own = settings[index]
            own = replace(own, lr=own.lr * learning_rate) if schedule else own
            taken = axes[index] if axes else None
            new_w, new_state = update_sum(parts[index], own, w, g, state, step, operations, taken)
            self.assign(variable, new_w)
            for state_variable, value in zip(state_variables, new_state):
                self.assign(state_variable, value)

    return o.plain, Equivalent(learning_rate=_factors(schedule) if schedule else 1.0)


def _factors(schedule: Schedule) -> Any:
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
