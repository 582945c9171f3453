"""Optimizers on JAX: those of optax, and exact equivalents of torch's formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from xverify.workload.optimizers import Optimizer, update


class Steps:
    """An optimizer as pure functions of lists with one array for each variable.

    optimizer: its settings, with the variants of its formula.
    """

    optimizer: Optimizer

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
    """An optimizer of optax, with weight decay as its users add it."""

    # Optimizer -> fields of optax's states that hold what Optimizer.state_names names, in the same order.
    STATE_NAMES = {"sgd": ("trace",), "adam": ("mu", "nu"), "adamw": ("mu", "nu"), "rmsprop": ("nu",)}

    def __init__(self, o: Optimizer) -> None:
        import optax

        variants: tuple[str, ...] = ()
        if o.name == "sgd":
            own = optax.sgd(o.lr, o.momentum or None, o.nesterov)
        elif o.name == "rmsprop":
            variants, own = ("eps-inside",), optax.rmsprop(o.lr, o.alpha, o.eps)
        elif o.name == "adamw":
            own = optax.adamw(o.lr, o.beta1, o.beta2, o.eps, weight_decay=o.weight_decay)
        else:
            own = optax.adam(o.lr, o.beta1, o.beta2, o.eps)
        decay = [optax.add_decayed_weights(o.weight_decay)] if o.weight_decay and o.name != "adamw" else []
        self.optax, self.own = optax, optax.chain(*decay, own)
        self.optimizer = replace(o, variants=variants)
        self.fields = self.STATE_NAMES[o.name][: len(o.state_names)]

    def begin(self, trained: Sequence[Any]) -> Any:
        return self.own.init(trained)

    def apply(self, gradients: Sequence[Any], state: Any, trained: Sequence[Any]) -> tuple[list[Any], Any]:
        changes, state = self.own.update(gradients, state, trained)
        return self.optax.apply_updates(trained, changes), state

    def read(self, state: Any) -> list[list[Any]]:
        return [_field(state, name) for name in self.fields]

    def resume(self, trained: Sequence[Any], steps: int, fields: Sequence[Sequence[Any]]) -> Any:
        import jax.numpy as jnp

        values = {name: list(arrays) for name, arrays in zip(self.fields, fields)}
        return _replaced(self.begin(trained), {"count": jnp.asarray(steps, "int32"), **values})


def _field(state: Any, name: str) -> Any:
    """The first field of this name in optax's states, which are nested; None when there is none."""
    if name in getattr(state, "_fields", ()):
        return getattr(state, name)
    found = (_field(each, name) for each in state) if isinstance(state, tuple) else ()
    return next((each for each in found if each is not None), None)


def _replaced(state: Any, values: Mapping[str, Any]) -> Any:
    """Optax's states with these values in the fields of these names."""
    if hasattr(state, "_fields"):
        own = state._asdict().items()
        return type(state)(**{name: values[name] if name in values else _replaced(each, values) for name, each in own})
    return tuple(_replaced(each, values) for each in state) if isinstance(state, tuple) else state


class Equivalent(Steps):
    """Torch's formulas in JAX's operations.

    sums: for each variable, the number of torch's parameters that it is the sum of; 1 for most.
    """

    def __init__(self, o: Optimizer, sums: Sequence[int]) -> None:
        self.optimizer, self.settings, self.sums = o.plain, o, sums

    def begin(self, trained: Sequence[Any]) -> Any:
        import jax.numpy as jnp

        return self.resume(
            trained, 0, [[jnp.zeros_like(value) for value in trained] for _ in self.optimizer.state_names]
        )

    def apply(self, gradients: Sequence[Any], state: Any, trained: Sequence[Any]) -> tuple[list[Any], Any]:
        import jax.numpy as jnp

        count, fields = state
        changed, after = [], [list[Any]() for _ in fields]
        for index, (value, gradient) in enumerate(zip(trained, gradients)):
            old = [field[index] for field in fields]
            new, kept = update(self.settings, value, gradient, old, (count + 1).astype(value.dtype), jnp.sqrt)
            # Each of the parts of a sum changes by the same amount, so the sum changes by a multiple of it.
            times = self.sums[index]
            changed.append(new if times == 1 else value + times * (new - value))
            for field, array in zip(after, kept):
                field.append(array)
        return changed, (count + 1, after)

    def read(self, state: Any) -> list[list[Any]]:
        fields: list[list[Any]] = state[1]
        return fields

    def resume(self, trained: Sequence[Any], steps: int, fields: Sequence[Sequence[Any]]) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(steps, "int32"), [list(arrays) for arrays in fields]
