"""Optimizers on JAX with their recipe: those of optax, and exact equivalents of torch's formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

from xverify.frameworks.jax.optax_adafactor import Axes, adafactor_variants
from xverify.frameworks.jax.transformation import learning_rate, transformation
from xverify.weights.flax_layout import NamedWeight
from xverify.workload.adafactor import Factored, with_other_axes
from xverify.workload.optimizers import Optimizer, update_sum
from xverify.workload.recipe import clipped, mean_of_parts


class Seen(NamedTuple):
    """What a step used of the recipe: a value for each variable.

    accumulated, clipped: gradients. rates: learning rates.
    """

    accumulated: Sequence[Any]
    clipped: Sequence[Any]
    rates: Sequence[Any]


class Steps:
    """An optimizer with its recipe, as pure functions of lists with one array for each variable.

    optimizer: its settings; a subclass adds the variants of its formula. settings: of each variable.
    factored: see Training.factored.
    """

    factored: Mapping[str, Factored] = {}

    def __init__(self, o: Optimizer, weights: Sequence[NamedWeight]) -> None:
        self.optimizer = o
        self.settings = [o.of(each.name) for each in weights for _ in each.parts]

    def begin(self, trained: Sequence[Any]) -> Any:
        """The state before the first step."""
        raise NotImplementedError

    def apply(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> tuple[list[Any], Any]:
        """One update: (the variables after it, the state after it). parts: the gradients of each micro-batch."""
        raise NotImplementedError

    def observed(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> Seen:
        """What ``apply`` uses of the recipe."""
        raise NotImplementedError

    def read(self, state: Any) -> list[list[Any]]:
        """What ``Optimizer.state_names`` names, in the same order: lists with one array for each variable."""
        raise NotImplementedError

    def resume(self, trained: Sequence[Any], steps: int, fields: Sequence[Sequence[Any]]) -> Any:
        """A state after this number of steps. fields: what ``read`` returns."""
        raise NotImplementedError


class Optax(Steps):
    """An optimizer of optax. axes: of the variables, which adafactor needs; None with another optimizer."""

    # Optimizer -> fields of optax's states that hold what Optimizer.state_names names, in the same order.
    ADAM = ("mu", "nu", "nu_max")
    STATE_NAMES = {"sgd": ("trace",), "adam": ADAM, "adamw": ADAM, "lion": ("mu",)}
    STATE_NAMES |= {"rmsprop": ("nu",), "adagrad": ("sum_of_squares",), "adafactor": ("v_row", "v_col", "v")}

    def __init__(self, o: Optimizer, weights: Sequence[NamedWeight], axes: Axes | None = None) -> None:
        import optax

        super().__init__(o, weights)
        self.optimizer = replace(o, variants=_variants(o))
        self.optax, self.axes = optax, axes
        self.transformation = transformation(o, self.settings)
        if axes is not None:
            self.factored = axes.other_than_torch()
            self.optimizer = with_other_axes(self.optimizer, self.factored)
        self.fields = o.keys(self.STATE_NAMES)

    def begin(self, trained: Sequence[Any]) -> Any:
        return self.transformation.init(trained)

    def apply(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> tuple[list[Any], Any]:
        after = list(trained)
        for gradients in parts:  # the weights change with the last of them
            changes, state = self.transformation.update(gradients, state, after)
            after = self.optax.apply_updates(after, changes)
        return after, state

    def observed(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> Seen:
        recorded = copy(self)
        recorded.transformation = transformation(self.optimizer, self.settings, recorded=True)
        steps = next(_fields_of(state, "count"), 0)
        _, after = recorded.apply(parts, recorded.resume(trained, steps, self.read(state)), trained)
        accumulated, clipped = _fields_of(after, "recorded")
        rates = [rate(steps) if callable(rate) else rate for rate in map(learning_rate, self.settings)]
        return Seen(accumulated, clipped, rates)

    def read(self, state: Any) -> list[list[Any]]:
        fields = [self._merged(list(_fields_of(state, name))) for name in self.fields]
        return fields if self.axes is None else self.axes.whole(fields)

    def _merged(self, groups: Sequence[Sequence[Any]]) -> list[Any]:
        """One array for each variable. groups: the arrays of each group of variables, with masks in the places of the others."""
        mask = self.optax.MaskedNode
        return [next(each for each in places if not isinstance(each, mask)) for places in zip(*groups)]

    def resume(self, trained: Sequence[Any], steps: int, fields: Sequence[Sequence[Any]]) -> Any:
        import jax.numpy as jnp

        count = jnp.asarray(steps, "int32")
        fields = fields if self.axes is None else self.axes.kept(fields)
        values = {name: list(arrays) for name, arrays in zip(self.fields, fields)}
        return self._replaced(self.begin(trained), {"count": count, "gradient_step": count, **values})

    def _replaced(self, state: Any, values: Mapping[str, Any]) -> Any:
        """Optax's states with these values in the fields of these names. A mask in a field stays where it is."""
        if hasattr(state, "_fields"):
            own = {
                name: self._masked(each, values[name]) if name in values else self._replaced(each, values)
                for name, each in state._asdict().items()
            }
            return type(state)(**own)
        if isinstance(state, dict):  # of groups
            return {name: self._replaced(each, values) for name, each in state.items()}
        return tuple(self._replaced(each, values) for each in state) if isinstance(state, tuple) else state

    def _masked(self, old: Any, new: Any) -> Any:
        """The new arrays, with masks where the old ones have them."""
        mask = self.optax.MaskedNode
        return [o if isinstance(o, mask) else n for o, n in zip(old, new)] if isinstance(old, list) else new


def _variants(o: Optimizer) -> tuple[str, ...]:
    """The differences of optax's optimizer and of its facilities from torch's, without those that depend on the weights."""
    recipe = o.recipe
    formula = adafactor_variants(o) if o.name == "adafactor" else ("eps-inside",) * (o.name in ("rmsprop", "adagrad"))
    if o.name != "adafactor":
        formula += ("corrected maximum",) * recipe.amsgrad
    late = recipe.schedule is not None and recipe.schedule.kind == "one-cycle"
    return formula + ("clip eps",) * (recipe.clip_norm is not None) + ("late one-cycle",) * late


def _fields_of(state: Any, name: str) -> Iterator[Any]:
    """Every field of this name in optax's states, which are nested, in order."""
    if name in getattr(state, "_fields", ()):
        yield getattr(state, name)
    elif isinstance(state, (tuple, dict)):
        for each in state.values() if isinstance(state, dict) else state:
            yield from _fields_of(each, name)


class Equivalent(Steps):
    """Torch's formulas in JAX's operations.

    sums: for each variable, the number of torch's parameters that it is the sum of; 1 for most.
    axes: of the variables, which adafactor needs; None with another optimizer.
    """

    def __init__(
        self, o: Optimizer, weights: Sequence[NamedWeight], sums: Sequence[int], axes: Axes | None = None
    ) -> None:
        from xverify.frameworks.jax.operations import JaxOperations

        super().__init__(o, weights)
        self.optimizer = o.plain
        self.recipe, self.sums, self.operations = o.recipe, sums, JaxOperations()
        self.torch_axes: Sequence[Factored] = () if axes is None else axes.of_torch()
        self.owners = [index for index, each in enumerate(weights) for _ in each.parts]

    def begin(self, trained: Sequence[Any]) -> Any:
        import jax.numpy as jnp

        return self.resume(
            trained, 0, [[jnp.zeros_like(value) for value in trained] for _ in self.optimizer.state_names]
        )

    def apply(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> tuple[list[Any], Any]:
        gradients, factor, (count, fields) = self._clipped(mean_of_parts(parts)), self._factor(state), state
        changed, after = [], [list[Any]() for _ in fields]
        for index, (value, gradient) in enumerate(zip(trained, gradients)):
            old, own = [field[index] for field in fields], self.settings[index]
            number = (count + 1).astype(value.dtype)
            own = replace(own, lr=own.lr * factor)
            axes = self.torch_axes[index] if self.torch_axes else None
            new, kept = update_sum(self.sums[index], own, value, gradient, old, number, self.operations, axes)
            changed.append(new)
            for field, array in zip(after, kept):
                field.append(array)
        return changed, (count + 1, after)

    def observed(self, parts: Sequence[Sequence[Any]], state: Any, trained: Sequence[Any]) -> Seen:
        accumulated, factor = mean_of_parts(parts), self._factor(state)
        return Seen(accumulated, self._clipped(accumulated), [own.lr * factor for own in self.settings])

    def _factor(self, state: Any) -> Any:
        """The factor of the schedule, from a table."""
        import jax.numpy as jnp

        schedule = self.recipe.schedule
        return jnp.take(jnp.asarray(schedule.factors(), "float32"), state[0], mode="clip") if schedule else 1.0

    def _clipped(self, gradients: Sequence[Any]) -> Sequence[Any]:
        return clipped(self.recipe.clip, gradients, self.operations, self.owners)

    def read(self, state: Any) -> list[list[Any]]:
        fields: list[list[Any]] = state[1]
        return fields

    def resume(self, trained: Sequence[Any], steps: int, fields: Sequence[Sequence[Any]]) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(steps, "int32"), [list(arrays) for arrays in fields]
