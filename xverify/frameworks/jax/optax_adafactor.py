"""optax.adafactor, and its state, whose arrays have fewer axes than a variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.weights.flax_layout import NamedWeight, join
from xverify.workload.adafactor import (
    Factored,
    canonical_axes,
    last_two,
    native_axes,
    order_of_weight,
)
from xverify.workload.optimizers import Optimizer

LEAST_SIZE = 128  # optax's min_dim_size_to_factor
RATE = 0.01  # torch limits the learning rate to 1/√step, which reaches this one after 10,000 steps


def own_adafactor(o: Optimizer, rate: Any) -> Any:
    """Optax's optimizer. rate: the learning rate, or a schedule of optax. Its weight decay is no multiple of the rate."""
    import optax

    if callable(rate) and o.weight_decay:
        raise Unsupported("the weight decay of optax.adafactor does not follow a schedule; run with --match-optimizer")
    return optax.adafactor(
        rate,
        decay_rate=-o.beta2_decay,
        clipping_threshold=o.threshold,
        weight_decay_rate=o.lr * o.weight_decay or None,
        eps=o.eps**2,
    )


def adafactor_variants(o: Optimizer) -> tuple[str, ...]:
    """The formula variants of optax.adafactor, without the one that depends on the weights."""
    return ("eps-added", *["unlimited rate"] * (o.lr > RATE))


class Axes:
    """The axes of the variables of these weights. Raises Unsupported for a weight that is no variable with the same axes.

    weights: the trained ones. shapes: of their variables.
    """

    def __init__(self, weights: Sequence[NamedWeight], shapes: Sequence[tuple[int, ...]]) -> None:
        self.shapes = list(shapes)
        self.names = [each.name for each in weights]
        of_variables, self.orders = iter(self.shapes), list[tuple[int, ...]]()
        for each in weights:
            own = [next(of_variables) for _ in each.parts]
            self.orders.append(order_of_weight(each.name, own, lambda array: join(each, [array])))  # noqa: B023

    def of_torch(self) -> list[Factored]:
        """For each variable, those of its axes that are the last two of torch's weight."""
        return [native_axes(order, last_two(len(order))) for order in self.orders]

    def other_than_torch(self) -> dict[str, Factored]:
        """The canonical axes that optax takes, for each weight of which torch takes others."""
        found = {
            name: canonical_axes(order, _own(shape)) for name, order, shape in zip(self.names, self.orders, self.shapes)
        }
        return {
            name: axes for name, axes in found.items() if axes != last_two(len(self.orders[self.names.index(name)]))
        }

    def whole(self, fields: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """The state in the shape of the variables, in the order of Optimizer.state_names. fields: v_row, v_col and v of optax."""
        import jax.numpy as jnp

        found: list[list[Any]] = []
        for index, (shape, order) in enumerate(zip(self.shapes, self.orders)):
            own, zeros = _own(shape), jnp.zeros(shape)
            if not own:
                found.append([zeros, zeros, fields[2][index]])
                continue
            row, column = (
                jnp.broadcast_to(jnp.expand_dims(field[index], axis), shape)
                for field, axis in zip(fields, reversed(own))
            )
            found.append([row, column, zeros] if _in_order(order, own) else [column, row, zeros])
        return [list(each) for each in zip(*found)]

    def kept(self, fields: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """The state as optax keeps it. fields: what ``whole`` returns."""
        import jax.numpy as jnp

        found: list[list[Any]] = []
        for shape, order, row, column, square in zip(self.shapes, self.orders, *fields):
            own, nothing = _own(shape), jnp.zeros((1,))
            if not own:
                found.append([nothing, nothing, square])
                continue
            first, second = (row, column) if _in_order(order, own) else (column, row)
            found.append([jnp.take(first, 0, own[1]), jnp.take(second, 0, own[0]), nothing])
        return [list(each) for each in zip(*found)]


def _own(shape: tuple[int, ...]) -> Factored:
    """The axes of a variable that optax takes: v_row changes along the first of them, and v_col along the second."""
    order = np.argsort(shape)
    if len(shape) < 2 or shape[order[-2]] < LEAST_SIZE:
        return ()
    return int(order[-2]), int(order[-1])


def _in_order(order: Sequence[int], own: Factored) -> bool:
    """Whether the axes have the same order in the canonical weight. order: of the axes of a variable."""
    return order.index(own[0]) < order.index(own[1])
