"""Optimizers on JAX: those of optax, and exact equivalents of torch's formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from xverify.frameworks.jax.optax_adafactor import Axes, adafactor_variants, own_adafactor
from xverify.workload.adafactor import Factored, with_other_axes
from xverify.workload.optimizers import Optimizer, update_sum


class Steps:
    """An optimizer as pure functions of lists with one array for each variable.

    optimizer: its settings, with the variants of its formula.
    factored: see Training.factored.
    """

    optimizer: Optimizer
    factored: Mapping[str, Factored] = {}

    def begin(self, trained: Sequence[Any]) -> Any:
        """The state before the first step."""
        raise NotImplementedError

    def apply(self, gradients: Sequence[Any], state: Any, trained: Sequence[Any]) -> tuple[list[Any], Any]:
        """One step: (the variables after it, the state after it)."""
        raise NotImplementedError

    def read(self, state: Any) -> list[list[Any]]:
        """What ``Optimizer.state_names`` names, in the same order: lists with one array for each variable."""
        raise NotImplementedError

    def resume(self, trained: Sequence[Any], steps: int, fields: Sequence[Sequence[Any]]) -> Any:
        """A state after this number of steps. fields: what ``read`` returns."""
        raise NotImplementedError


class Optax(Steps):
    """An optimizer of optax.

    own: the transformation of gradients; None: ``own_optimizer(o)``.
    axes: of the variables, which adafactor needs; None with another optimizer.
    """

    # Optimizer -> fields of optax's states that hold what Optimizer.state_names names, in the same order.
    ADAM = ("mu", "nu", "nu_max")
    STATE_NAMES = {"sgd": ("trace",), "adam": ADAM, "adamw": ADAM, "rmsprop": ("nu",), "lion": ("mu",)}
    STATE_NAMES["adafactor"] = ("v_row", "v_col", "v")

    def __init__(self, o: Optimizer, own: Any = None, axes: Axes | None = None) -> None:
        import optax

        self.optax, self.own = optax, own or own_optimizer(o)
        self.optimizer, self.axes = replace(o, variants=variants(o)), axes
        if axes is not None:
            self.factored = axes.other_than_torch()
            self.optimizer = with_other_axes(self.optimizer, self.factored)
        self.fields = o.keys(self.STATE_NAMES)

    def begin(self, trained: Sequence[Any]) -> Any:
        return self.own.init(trained)

    def apply(self, gradients: Sequence[Any], state: Any, trained: Sequence[Any]) -> tuple[list[Any], Any]:
        changes, state = self.own.update(gradients, state, trained)
        return self.optax.apply_updates(trained, changes), state

    def read(self, state: Any) -> list[list[Any]]:
        fields = [self._merged(list(found_fields(state, name))) for name in self.fields]
        return fields if self.axes is None else self.axes.whole(fields)

    def _merged(self, found: Sequence[Sequence[Any]]) -> list[Any]:
        """One array for each variable. found: of each group of variables, with masks in the places of the others."""
        mask = self.optax.MaskedNode
        return [next(each for each in places if not isinstance(each, mask)) for places in zip(*found)]

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


def own_optimizer(o: Optimizer, rate: Any = None) -> Any:
    """An optimizer of optax, with weight decay as its users add it. rate: a schedule in the place of the learning rate."""
    import optax

    rate, decay = o.lr if rate is None else rate, optax.add_decayed_weights(o.weight_decay)
    if o.name == "adamw" and not o.recipe.amsgrad:
        return optax.adamw(rate, o.beta1, o.beta2, o.eps, weight_decay=o.weight_decay)
    if o.name == "adafactor":
        return own_adafactor(o, rate)
    if o.name == "lion":
        return optax.lion(rate, o.beta1, o.beta2, weight_decay=o.weight_decay)
    if o.name == "adamw":
        return optax.chain(optax.scale_by_amsgrad(o.beta1, o.beta2, o.eps), decay, optax.scale_by_learning_rate(rate))
    if o.name == "sgd":
        own = optax.sgd(rate, o.momentum or None, o.nesterov)
    elif o.name == "rmsprop":
        own = optax.rmsprop(rate, o.alpha, o.eps)
    else:
        own = (optax.amsgrad if o.recipe.amsgrad else optax.adam)(rate, o.beta1, o.beta2, o.eps)
    return optax.chain(decay, own) if o.weight_decay else own


def variants(o: Optimizer) -> tuple[str, ...]:
    """The formula variants of optax's optimizer."""
    if o.name == "adafactor":
        return adafactor_variants(o)
    return ("eps-inside",) * (o.name == "rmsprop") + ("corrected maximum",) * o.recipe.amsgrad


def found_fields(state: Any, name: str) -> Iterator[Any]:
    """Every field of this name in optax's states, which are nested, in order."""
    if name in getattr(state, "_fields", ()):
        yield getattr(state, name)
    elif isinstance(state, (tuple, dict)):
        for each in state.values() if isinstance(state, dict) else state:
            yield from found_fields(each, name)


class Equivalent(Steps):
    """Torch's formulas in JAX's operations.

    sums: for each variable, the number of torch's parameters that it is the sum of; 1 for most.
    each: for each variable, its own settings; (): all have those of ``o``.
    axes: of the variables, which adafactor needs; None with another optimizer.
    """

    def __init__(
        self, o: Optimizer, sums: Sequence[int], each: Sequence[Optimizer] = (), axes: Axes | None = None
    ) -> None:
        self.optimizer, self.sums = o.plain, sums
        self.torch_axes: Sequence[Factored] = () if axes is None else axes.of_torch()
        self.settings = each or [o] * len(sums)

    def begin(self, trained: Sequence[Any]) -> Any:
        import jax.numpy as jnp

        return self.resume(
            trained, 0, [[jnp.zeros_like(value) for value in trained] for _ in self.optimizer.state_names]
        )

    def apply(
        self, gradients: Sequence[Any], state: Any, trained: Sequence[Any], factor: Any = 1.0
    ) -> tuple[list[Any], Any]:
        """See ``Steps.apply``. factor: of the schedule, which multiplies every learning rate."""
        from xverify.frameworks.jax.operations import JaxOperations

        ops, (count, fields) = JaxOperations(), state
        changed, after = [], [list[Any]() for _ in fields]
        for index, (value, gradient) in enumerate(zip(trained, gradients)):
            old, own = [field[index] for field in fields], self.settings[index]
            number = (count + 1).astype(value.dtype)
            own = replace(own, lr=own.lr * factor)
            axes = self.torch_axes[index] if self.torch_axes else None
            new, kept = update_sum(self.sums[index], own, value, gradient, old, number, ops, axes)
            changed.append(new)
            for field, array in zip(after, kept):
                field.append(array)
        return changed, (count + 1, after)

    def read(self, state: Any) -> list[list[Any]]:
        fields: list[list[Any]] = state[1]
        return fields

    def resume(self, trained: Sequence[Any], steps: int, fields: Sequence[Sequence[Any]]) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(steps, "int32"), [list(arrays) for arrays in fields]
