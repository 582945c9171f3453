"""keras.optimizers.Adafactor, and its state, whose arrays have fewer axes than a variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from xverify.framework.adapter import Array
from xverify.weights import tensorflow as weights
from xverify.weights.tensorflow import NamedVariable
from xverify.workload.adafactor import Factored, canonical_axes, last_two, order_of_weight
from xverify.workload.optimizers import Optimizer

Orders = Mapping[int, tuple[int, ...]]  # id of a variable -> see adafactor.order_of_weight


def keras_adafactor(o: Optimizer, rate: Any, **more: Any) -> tuple[Optimizer, Any]:
    """The settings with Keras' formula variants, and Keras' own optimizer. The arguments are those of ``keras_optimizer``."""
    from keras import optimizers

    made = optimizers.Adafactor(
        rate, o.beta2_decay, o.eps**2, o.eps2, o.threshold, weight_decay=o.weight_decay or None, **more
    )
    return replace(o, variants=("eps-added", *["decayed scale"] * bool(o.weight_decay))), made


def axes_of_weights(trainable: Sequence[NamedVariable]) -> dict[int, tuple[int, ...]]:
    """The order of the axes of every variable. Raises Unsupported for a weight that is no variable with the same axes."""
    found = dict[int, tuple[int, ...]]()
    for each in trainable:
        variable = each.pieces[0].variable
        shapes = [] if id(variable) in found else [tuple(piece.variable.shape) for piece in each.pieces]
        found[id(variable)] = order_of_weight(
            each.name,
            shapes,
            lambda array: weights.canonical(each, lambda _: array),  # noqa: B023
        )
    return found


def own_axes(trainable: Sequence[NamedVariable], orders: Orders) -> dict[str, Factored]:
    """The canonical axes that Keras takes, the last two of a variable, for each weight of which torch takes others."""
    found = {each.name: orders[id(each.pieces[0].variable)] for each in trainable}
    axes = {name: canonical_axes(order, last_two(len(order))) for name, order in found.items()}
    return {name: own for name, own in axes.items() if own != last_two(len(found[name]))}


class Factor:
    """An array of Keras' state with the interface of a variable that has the shape of the weight.

    variable: of the optimizer; None: it has none, and the values are zero. shape: of the weight.
    axis: over which the mean is taken; None: it is no mean.
    """

    def __init__(self, variable: Any, shape: tuple[int, ...], axis: int | None) -> None:
        self.variable, self.shape, self.axis = variable, shape, axis

    @property
    def value(self) -> Any:
        """The array, repeated along its axis."""
        from keras import ops

        if self.variable is None:
            return ops.zeros(self.shape)
        if self.axis is None:
            return self.variable.value
        return ops.broadcast_to(ops.expand_dims(self.variable.value, self.axis), self.shape)

    def assign(self, array: Array) -> None:
        """Keep one of the equal values along the axis."""
        if self.variable is not None:
            self.variable.assign(array if self.axis is None else array.take(0, self.axis))


def factors(optim: Any, variable: Any, index: int, order: Sequence[int]) -> list[Factor]:
    """The state of a variable, in the order of Optimizer.state_names. index: of the variable. order: of its axes."""
    shape = tuple(variable.shape)
    if len(shape) < 2:
        nothing = Factor(None, shape, None)
        return [nothing, nothing, Factor(optim._v[index], shape, None)]
    # Keras' r changes along the second last axis of the variable, and c along the last one.
    first, second = len(shape) - 2, len(shape) - 1
    means = {first: Factor(optim._r[index], shape, second), second: Factor(optim._c[index], shape, first)}
    in_order = sorted(means, key=list(order).index)
    return [*(means[axis] for axis in in_order), Factor(None, shape, None)]
