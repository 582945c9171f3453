"""The settings around an optimizer on JAX: optax's own transformations, or torch's formulas in JAX's operations.

Optax joins transformations of gradients: ``clip_by_global_norm`` and ``clip`` stand before the optimizers of the groups, which
``multi_transform`` puts together, and ``MultiSteps`` around all of them accumulates gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from xverify.errors import Unsupported
from xverify.frameworks.jax.optax import Equivalent, Optax, Steps, found_fields, own_optimizer
from xverify.frameworks.jax.optax_adafactor import Axes
from xverify.weights.flax_layout import NamedWeight
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import CLIPS, clipped


class Seen(NamedTuple):
    """What a step used of the recipe: a value for each variable.

    accumulated, clipped: gradients. rates: learning rates.
    """

    accumulated: Sequence[Any]
    clipped: Sequence[Any]
    rates: Sequence[Any]


class RecipeSteps(Steps):
    """An optimizer with what a recipe sets around it.

    settings: of each variable.
    """

    settings: Sequence[Optimizer]

    def apply_parts(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> tuple[list[Any], Any]:
        """One update: (the variables after it, the state after it). parts: the gradients of each micro-batch."""
        raise NotImplementedError

    def observed(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> Seen:
        """What ``apply_parts`` uses of the recipe."""
        raise NotImplementedError


class OptaxRecipe(Optax, RecipeSteps):
    """Optax's own transformations."""

    def __init__(self, o: Optimizer, weights: Sequence[NamedWeight], axes: Axes | None = None) -> None:
        self.settings = [o.of(each.name) for each in weights for _ in each.parts]
        super().__init__(o, _transformation(o, self.settings, recorded=False), axes)
        self.optimizer = _with_differences(self.optimizer)
        self.recorded = Optax(o, _transformation(o, self.settings, recorded=True), axes)

    def apply_parts(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> tuple[list[Any], Any]:
        after = list(trained)
        for gradients in parts:  # the weights change with the last of them
            after, state = self.apply(gradients, state, after)
        return after, state

    def observed(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> Seen:
        recorded = self.recorded
        steps = next(found_fields(state, "count"), 0)
        after = recorded.resume(trained, steps, self.read(state))
        for gradients in parts:
            _, after = recorded.apply(gradients, after, trained)
        accumulated, clipped = found_fields(after, "recorded")
        rates = [rate(steps) if callable(rate) else rate for rate in map(_rate, self.settings)]
        return Seen(accumulated, clipped, rates)


def _with_differences(o: Optimizer) -> Optimizer:
    """The settings with all differences of optax. o: those with the variants of the formula."""
    known = [*o.variants, *["clip eps"] * (o.recipe.clip_norm is not None)]
    known += ["late one-cycle"] * bool(o.recipe.schedule and o.recipe.schedule.kind == "one-cycle")
    return replace(o, variants=tuple(known))


def _transformation(o: Optimizer, settings: Sequence[Optimizer], recorded: bool) -> Any:
    """Optax's transformation for a recipe. recorded: whether its state holds the gradients before and after they are clipped."""
    import optax

    groups = list(dict.fromkeys(settings))
    optimizers = [own_optimizer(each, _rate(each)) for each in groups]
    own = optimizers[0]
    if len(groups) > 1:
        own = optax.multi_transform(dict(enumerate(optimizers)), [groups.index(each) for each in settings])
    record = [_record()] * recorded
    chained = optax.chain(*record, *_clip(o), *record, own)
    return optax.MultiSteps(chained, o.recipe.accumulate) if o.recipe.accumulate > 1 else chained


def _clip(o: Optimizer) -> list[Any]:
    import optax

    if not o.recipe.clip:
        return []
    how, limit = o.recipe.clip
    if how == "clip_each":
        raise Unsupported(f"optax does not clip the {CLIPS[how]}; run with --match-optimizer")
    return [optax.clip(limit) if how == "clip_value" else optax.clip_by_global_norm(limit)]


class _Recorded(NamedTuple):
    """The state of ``_record``: the gradients that it was given."""

    recorded: Any


def _record() -> Any:
    """A transformation that changes nothing, and keeps the gradients in its state."""
    import jax
    import optax

    return optax.GradientTransformation(
        lambda trained: _Recorded(jax.tree.map(jax.numpy.zeros_like, trained)),
        lambda gradients, state, trained=None: (gradients, _Recorded(gradients)),
    )


def _rate(o: Optimizer) -> Any:
    """The learning rate of a parameter: a number, or a schedule of optax."""
    import optax

    schedule, lr = o.recipe.schedule, o.lr
    if schedule is None:
        return lr
    count = (schedule.steps or 0) - schedule.warmup
    if schedule.kind == "cosine" and schedule.warmup:
        return optax.warmup_cosine_decay_schedule(
            lr * schedule.start, lr, schedule.warmup, schedule.steps, lr * schedule.end
        )
    make: dict[str, Callable[[], Any]] = {
        "constant": lambda: optax.constant_schedule(lr),
        "step": lambda: optax.exponential_decay(lr, schedule.every, schedule.gamma, staircase=True),
        "linear": lambda: optax.linear_schedule(lr, lr * schedule.end, count),
        "cosine": lambda: optax.cosine_decay_schedule(lr, count, schedule.end),
        "one-cycle": lambda: optax.cosine_onecycle_schedule(count, lr),
    }
    later = make[schedule.kind]()
    if not schedule.warmup:
        return later
    rise = optax.linear_schedule(lr * schedule.start, lr, schedule.warmup)
    return optax.join_schedules([rise, later], [schedule.warmup])


class EquivalentRecipe(Equivalent, RecipeSteps):
    """Torch's formulas in JAX's operations."""

    def __init__(
        self, o: Optimizer, sums: Sequence[int], weights: Sequence[NamedWeight], axes: Axes | None = None
    ) -> None:
        super().__init__(o, sums, [o.of(each.name) for each in weights for _ in each.parts], axes)
        self.recipe = o.recipe
        self.owners = [index for index, each in enumerate(weights) for _ in each.parts]

    def apply_parts(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> tuple[list[Any], Any]:
        return self.apply(self._clipped(_mean(parts)), state, trained, self._factor(state))

    def observed(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> Seen:
        accumulated, factor = _mean(parts), self._factor(state)
        return Seen(accumulated, self._clipped(accumulated), [own.lr * factor for own in self.settings])

    def _factor(self, state: Any) -> Any:
        """The factor of the schedule, from a table."""
        import jax.numpy as jnp

        schedule = self.recipe.schedule
        return jnp.take(jnp.asarray(schedule.factors(), "float32"), state[0], mode="clip") if schedule else 1.0

    def _clipped(self, gradients: Sequence[Any]) -> Sequence[Any]:
        from xverify.frameworks.jax.operations import JaxOperations

        return clipped(self.recipe.clip, gradients, JaxOperations(), self.owners)


def _mean(parts: Sequence[Sequence[Any]]) -> list[Any]:
    """The mean of the gradients of all micro-batches."""
    return [sum(each[1:], each[0]) / len(parts) for each in zip(*parts)]
